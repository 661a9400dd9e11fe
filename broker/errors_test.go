package broker

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// internalErrors are sentinels that no request can meet: they end a connection,
// or stay within the node.
var internalErrors = map[string]string{
	"errIdle":               "ends a connection",
	"errLateCommit":         "ends a connection",
	"errFrameSlow":          "ends a connection",
	"errFrameCut":           "ends a connection",
	"errTooManyConnections": "refuses a connection",
	"errTooManyFromAddress": "refuses a connection",
	"errSnapshot":           "recovery does without the file",
	"errStaleAttempt":       "ends an attempt of the feed",
	"errSuperseded":         "ends a compaction",
	"errUncleanable":        "ends a compaction",
}

// Every sentinel of the packages whose errors reach handlers is in the table, or
// is listed above with the reason why not.
func TestErrorCodesAreExhaustive(t *testing.T) {
	table := make(map[string]bool)
	for _, row := range errorCodes {
		table[row.err.Error()] = true
	}
	for _, dir := range []string{".", "../storage", "../controller"} {
		for name, text := range sentinels(t, dir) {
			if _, internal := internalErrors[name]; internal {
				continue
			}
			if dir == "../controller" && !ast.IsExported(name) {
				continue // cannot leave its package but wrapped by an exported one
			}
			if !table[text] {
				t.Errorf("%s: %s (%q) has no code", dir, name, text)
			}
		}
	}
}

// sentinels are the package-level errors.New of a folder, by name.
func sentinels(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				sentinelsOf(spec.(*ast.ValueSpec), out)
			}
		}
	}
	return out
}

func sentinelsOf(spec *ast.ValueSpec, out map[string]string) {
	for i, v := range spec.Values {
		call, ok := v.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			continue
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		lit, isLit := call.Args[0].(*ast.BasicLit)
		if ok && isLit && sel.Sel.Name == "New" {
			out[spec.Names[i].Name] = strings.Trim(lit.Value, "\"`")
		}
	}
}

func TestCodeOf(t *testing.T) {
	tests := []struct {
		err  error
		want wire.Code
	}{
		{nil, wire.None},
		{errNotLeader, 6}, {errStaleSession, 6}, {errFencedEpoch, 74}, {errUnknownEpoch, 75}, {errOutOfRange, 1},
		{errOffsetNotAvailable, 78}, {errStorage, 56}, {errStorageFull, 56}, {errNotEnoughReplicas, 19},
		{errNotEnoughAfterAppend, 20}, {errUnknownPartition, 3}, {errUnknownTopicID, 100}, {errInvalidAcks, 21},
		{errTransactional, 35}, {errNoProducerID, 14}, {errTimedOut, 7},
		{storage.ErrOutOfOrderSequence, 45}, {storage.ErrInvalidProducerEpoch, 47}, {storage.ErrFull, 56},
		{&storage.CorruptError{Msg: "x"}, 56},
		{controller.ErrNoController, 41}, {controller.ErrUnknown, 7},
		{context.DeadlineExceeded, 7},
		{wire.InvalidRequest, 42},
		{refused(wire.InvalidConfig, "text"), 40},
		{&batch.InvalidError{Reason: batch.InvalidRecord}, 87},
		{&batch.InvalidError{Reason: batch.CorruptMessage}, 2},
		{&batch.InvalidError{Reason: batch.MessageTooLarge}, 10},
		{&batch.InvalidError{Reason: batch.RecordListTooLarge}, 18},
		{&batch.InvalidError{Reason: batch.UnsupportedCompression}, 76},
		{&batch.InvalidError{Reason: batch.InvalidTimestamp}, 32},
		{fmt.Errorf("%w: %w", errNoProducerID, context.DeadlineExceeded), 14},
	}
	for _, tt := range tests {
		if got, known := codeOf(tt.err); got != tt.want || !known {
			t.Errorf("codeOf(%v) = %v, %v; want %v", tt.err, got, known, tt.want)
		}
		if tt.err == nil {
			continue
		}
		if got, _ := codeOf(fmt.Errorf("append: %w", tt.err)); got != tt.want {
			t.Errorf("codeOf(%v) = %v when wrapped, want %v", tt.err, got, tt.want)
		}
	}
	if got, known := codeOf(errors.New("never seen")); got != wire.UnknownServerError || known {
		t.Errorf("an unknown error: %v, %v", got, known)
	}
}

// Every reason of the validator has a code.
func TestReasonCodes(t *testing.T) {
	for r := batch.InvalidRecord; r <= batch.InvalidTimestamp; r++ {
		if reasonCodes[r] == wire.None {
			t.Errorf("%v has no code", r)
		}
	}
}

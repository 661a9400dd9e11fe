package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	last := Key(-1)
	for _, a := range APIs() {
		if a.Key <= last {
			t.Errorf("%s is out of order", a.Name)
		}
		last = a.Key
		if a.Min > a.Max || a.AdvertisedMin > a.Min || a.AdvertisedMin < 0 {
			t.Errorf("%s: versions %d to %d, advertised from %d", a.Name, a.Min, a.Max, a.AdvertisedMin)
		}
		if req, resp := a.NewRequest(), a.NewResponse(); req.Key() != a.Key || resp.Key() != a.Key {
			t.Errorf("%s makes messages of keys %d and %d", a.Name, req.Key(), resp.Key())
		}
		if got, ok := Lookup(a.Key); !ok || got.Name != a.Name || a.Key.String() != a.Name {
			t.Errorf("Lookup(%d) gives %q, %v", a.Key, got.Name, ok)
		}
		if a.Supports(a.Min-1) || a.Supports(a.Max+1) || !a.Supports(a.Min) || !a.Supports(a.Max) {
			t.Errorf("%s supports other versions than %d to %d", a.Name, a.Min, a.Max)
		}
	}
	if _, ok := Lookup(99); ok || Key(99).String() != "key 99" {
		t.Errorf("key 99 is known as %s", Key(99))
	}
	if a, _ := Lookup(KeyProduce); a.AdvertisedMin != 0 || a.Min != 3 {
		t.Errorf("Produce is %+v", a)
	}
}

// TestPinnedVersions: the versions that kafka-go's connections send without asking
// what the broker speaks.
func TestPinnedVersions(t *testing.T) {
	for k, versions := range map[Key][]int16{
		KeyListOffsets: {1}, KeyMetadata: {1, 6}, KeyOffsetCommit: {2}, KeyOffsetFetch: {1}, KeyFindCoordinator: {0},
		KeyJoinGroup: {1, 2}, KeyHeartbeat: {0}, KeyLeaveGroup: {0}, KeySyncGroup: {0},
	} {
		a, ok := Lookup(k)
		for _, v := range versions {
			if !ok || !a.Supports(v) {
				t.Errorf("%s does not support version %d", k, v)
			}
		}
	}
}

func TestTableIsACopy(t *testing.T) {
	APIs()[0].Name = "changed"
	if a, _ := Lookup(KeyProduce); a.Name != "Produce" {
		t.Errorf("the table changed through APIs: %q", a.Name)
	}
}

// messageTypes collects the struct types of all messages by name.
func messageTypes() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(t.Elem())
		case reflect.Struct:
			types[t.Name()] = t
			for i := range t.NumField() {
				walk(t.Field(i).Type)
			}
		}
	}
	for _, a := range APIs() {
		walk(reflect.TypeOf(a.NewRequest()))
		walk(reflect.TypeOf(a.NewResponse()))
	}
	return types
}

// TestElementSizes: the size that a message names for its elements, by which the
// allocation budget is charged, is the size that they have.
func TestElementSizes(t *testing.T) {
	set := token.NewFileSet()
	files, err := filepath.Glob("[0-9][0-9]_*.go")
	if err != nil {
		t.Fatal(err)
	}
	types := messageTypes()
	checked := 0
	elements := map[string]string{} // code function → its struct
	var calls []*ast.CallExpr
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "code") && len(n.Type.Params.List) >= 2 {
					if star, ok := n.Type.Params.List[1].Type.(*ast.StarExpr); ok {
						elements[n.Name.Name] = star.X.(*ast.Ident).Name
					}
				}
			case *ast.CallExpr:
				calls = append(calls, n)
			}
			return true
		})
	}
	for _, call := range calls {
		fn, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || fn.X.(ast.Node) == nil {
			continue
		}
		if pkg, ok := fn.X.(*ast.Ident); !ok || pkg.Name != "codec" {
			continue
		}
		switch fn.Sel.Name {
		case "Array", "NullableArray":
			t.Errorf("%s: %s does not name the size of its elements", set.Position(call.Pos()), fn.Sel.Name)
		case "ArrayOf", "NullableArrayOf", "Struct", "NullableStruct":
			size, _ := strconv.Atoi(call.Args[2].(*ast.BasicLit).Value)
			typ := types[elements[call.Args[3].(*ast.Ident).Name]]
			if typ == nil {
				t.Errorf("%s: no message holds what %s codes", set.Position(call.Pos()), call.Args[3])
			} else if int(typ.Size()) != size {
				t.Errorf("%s: %s has %d bytes, not %d", set.Position(call.Pos()), typ.Name(), typ.Size(), size)
			}
			checked++
		}
	}
	if checked < 2*len(files) {
		t.Errorf("found only %d arrays in %d files: the search is broken", checked, len(files))
	}
}

// TestOneFileForEachKey: a newcomer finds key 3 in the file that begins with 03.
func TestOneFileForEachKey(t *testing.T) {
	for _, a := range APIs() {
		prefix := strconv.Itoa(int(a.Key))
		if a.Key < 10 {
			prefix = "0" + prefix
		}
		if files, err := filepath.Glob(prefix + "_*.go"); err != nil || len(files) != 1 {
			t.Errorf("%s: files %v, %v", a.Name, files, err)
		}
	}
}

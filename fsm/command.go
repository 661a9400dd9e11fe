package fsm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirmq/weir/wire/codec"
)

// EntryBytes is how large a Raft entry should be at most: larger ones hold up
// the heartbeats behind them. Commands of many items are split to stay below.
const EntryBytes = 512 << 10

// ErrMalformed is wrapped by the error for bytes that are no command. It is the
// same on every node, so the machine answers BadCommand and goes on.
var ErrMalformed = errors.New("malformed command")

// UnknownCommandError is the error for a command, or a version of one, that a
// later release made. A node that cannot apply what the others apply must halt.
type UnknownCommandError struct {
	Kind    uint8
	Version uint8
}

func (e *UnknownCommandError) Error() string {
	return fmt.Sprintf("command kind %d version %d is not known to this release: upgrade this node", e.Kind, e.Version)
}

// Command is one guarded fact: what was decided, and the epochs it was decided
// at. The commands are the types of this package whose names are verbs.
type Command interface {
	kind() kind
	encode(c *codec.Coder)
	apply(e *edit) Result
}

// kind is the first byte of a command's encoding. Numbers are never reused.
type kind uint8

const (
	kindInitCluster         kind = 1
	kindRegisterBroker      kind = 2
	kindFenceBroker         kind = 3
	kindUnfenceBroker       kind = 4
	kindStopBroker          kind = 5
	kindChangeLeaders       kind = 6
	kindChangeISR           kind = 7
	kindCreateTopic         kind = 8
	kindDeleteTopic         kind = 9
	kindConfirmDeleted      kind = 10
	kindAllocateProducerIDs kind = 11
	kindReportDamaged       kind = 12
	kindAssignSlots         kind = 13
	kindSlotCommand         kind = 14
	kindAlterTopicConfigs   kind = 20
	kindAddPartitions       kind = 21
	kindChangeReplicas      kind = 22
	kindAdmitNode           kind = 30
	kindRemoveNode          kind = 31
	kindGiveUpBroker        kind = 32
)

// commandVersion is the second byte of every command so far. A change of one
// command's form adds a version for that command; the old one stays readable.
const commandVersion = 1

// entryVersion is the first byte of a Raft entry.
const entryVersion = 1

// EncodeCommand appends c to dst. Its strings must be short enough for the codec
// (32,767 bytes), which whoever takes them from a client has checked.
func EncodeCommand(dst []byte, c Command) []byte {
	if sc, ok := c.(SlotCommand); ok {
		dst = slices.Grow(dst, sc.encodedSize())
	}
	w := codec.NewWriter(append(dst, byte(c.kind()), commandVersion)).Flexible(true)
	c.encode(w)
	if err := w.Err(); err != nil {
		panic(fmt.Sprintf("BUG: encode command kind %d: %v", c.kind(), err))
	}
	return w.Bytes()
}

// DecodeCommand reads one command that fills p. The error is an
// *UnknownCommandError or wraps ErrMalformed. What it returns does not alias p.
func DecodeCommand(p []byte) (Command, error) {
	if len(p) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(p))
	}
	k, version := kind(p[0]), p[1]
	r := codec.NewReader(p[2:], budget(len(p))).Flexible(true)
	c := decode(k, r)
	if c == nil || version != commandVersion {
		return nil, &UnknownCommandError{Kind: p[0], Version: version}
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("%w: kind %d: %w", ErrMalformed, k, err)
	}
	return c, nil
}

// decode reads the body of a command; nil for a kind that is not known.
func decode(k kind, r *codec.Coder) Command {
	switch k {
	case kindInitCluster:
		return read(r, (*InitCluster).code)
	case kindRegisterBroker:
		return read(r, (*RegisterBroker).code)
	case kindFenceBroker:
		return read(r, (*FenceBroker).code)
	case kindUnfenceBroker:
		return read(r, (*UnfenceBroker).code)
	case kindStopBroker:
		return read(r, (*StopBroker).code)
	case kindChangeLeaders:
		return read(r, (*ChangeLeaders).code)
	case kindChangeISR:
		return read(r, (*ChangeISR).code)
	case kindCreateTopic:
		return read(r, (*CreateTopic).code)
	case kindDeleteTopic:
		return read(r, (*DeleteTopic).code)
	case kindConfirmDeleted:
		return read(r, (*ConfirmDeleted).code)
	case kindAllocateProducerIDs:
		return read(r, (*AllocateProducerIDs).code)
	case kindReportDamaged:
		return read(r, (*ReportDamaged).code)
	case kindAssignSlots:
		return read(r, (*AssignSlots).code)
	case kindSlotCommand:
		return read(r, (*SlotCommand).code)
	case kindAlterTopicConfigs:
		return read(r, (*AlterTopicConfigs).code)
	case kindAddPartitions:
		return read(r, (*AddPartitions).code)
	case kindChangeReplicas:
		return read(r, (*ChangeReplicas).code)
	case kindAdmitNode:
		return read(r, (*AdmitNode).code)
	case kindRemoveNode:
		return read(r, (*RemoveNode).code)
	case kindGiveUpBroker:
		return read(r, (*GiveUpBroker).code)
	}
	return nil
}

// read decodes a value by its symmetric method.
func read[T any](r *codec.Coder, code func(*T, *codec.Coder)) T {
	var v T
	code(&v, r)
	return v
}

// budget is what decoding n bytes may allocate: our compact forms blow up more
// than Kafka's, up to some 24 times.
func budget(n int) int { return 32*n + 64<<10 }

// EncodeEntry appends a Raft entry of several commands to dst: version byte,
// count, then each command with its length before it.
func EncodeEntry(dst []byte, cs []Command) []byte {
	encoded := make([][]byte, len(cs))
	for i, c := range cs {
		encoded[i] = EncodeCommand(nil, c)
	}
	return PackEntry(dst, encoded)
}

// PackEntry is EncodeEntry for commands that EncodeCommand has encoded.
func PackEntry(dst []byte, encoded [][]byte) []byte {
	size := entryHead
	for _, p := range encoded {
		size += len(p) + entryHead
	}
	w := codec.NewWriter(append(slices.Grow(dst, size), entryVersion)).Flexible(true)
	codec.Array(w, &encoded, (*codec.Coder).Bytes32)
	if err := w.Err(); err != nil {
		panic(fmt.Sprintf("BUG: pack an entry of %d commands: %v", len(encoded), err))
	}
	return w.Bytes()
}

// entryHead is at least what an entry has before its commands, and a command before itself.
const entryHead = 8

// entryParts splits a Raft entry that fills p into the encodings of its commands,
// which alias p.
func entryParts(p []byte) ([][]byte, error) {
	if len(p) == 0 {
		return nil, fmt.Errorf("%w: empty entry", ErrMalformed)
	}
	if p[0] != entryVersion {
		return nil, &UnknownCommandError{Version: p[0]}
	}
	r := codec.NewReader(p[1:], budget(len(p))).Flexible(true)
	var parts [][]byte
	codec.ArrayOf(r, &parts, 24, (*codec.Coder).Bytes32)
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("%w: entry: %w", ErrMalformed, err)
	}
	return parts, nil
}

// JoinEntries makes one Raft entry of the commands of several, in their order. It
// also returns how many commands each of them has.
func JoinEntries(entries [][]byte) (joined []byte, counts []int, err error) {
	var all [][]byte
	for _, p := range entries {
		parts, err := entryParts(p)
		if err != nil {
			return nil, nil, err
		}
		all, counts = append(all, parts...), append(counts, len(parts))
	}
	if len(entries) == 1 {
		return entries[0], counts, nil
	}
	return PackEntry(nil, all), counts, nil
}

// DecodeEntry reads the commands of a Raft entry that fills p. One bad command
// makes the whole entry bad. Errors are as those of DecodeCommand.
func DecodeEntry(p []byte) ([]Command, error) {
	parts, err := entryParts(p)
	if err != nil {
		return nil, err
	}
	cs := make([]Command, len(parts))
	for i, part := range parts {
		c, err := DecodeCommand(part)
		if err != nil {
			return nil, fmt.Errorf("command %d of %d: %w", i+1, len(parts), err)
		}
		cs[i] = c
	}
	return cs, nil
}

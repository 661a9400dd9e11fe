package history

import (
	"fmt"
	"strings"
)

// Process is one client from its creation to its end. A client that replaces a
// crashed one, and each client of the final reads, is a new process.
type Process uint32

// Key stands for one incarnation of one topic-partition; see Name.
type Key uint32

// Group stands for one consumer group.
type Group uint32

// Value is what a record carries, unique within its key: the process that sent it
// in the upper 24 bits and that process's counter in the lower 40.
type Value uint64

const counterBits = 40

// NewValue is the value that a process sends as its nth. It panics where they do
// not fit.
func NewValue(p Process, n uint64) Value {
	if p >= 1<<(64-counterBits) || n >= 1<<counterBits {
		panic(fmt.Sprintf("BUG: process %d, counter %d do not fit a value", p, n))
	}
	return Value(uint64(p)<<counterBits | n)
}

// Process is the process that sent the value.
func (v Value) Process() Process { return Process(v >> counterBits) }

// Counter tells the values of a process apart; it rises with each send.
func (v Value) Counter() uint64 { return uint64(v) & (1<<counterBits - 1) }

// String is "process.counter".
func (v Value) String() string { return fmt.Sprintf("%d.%d", v.Process(), v.Counter()) }

// NoOffset stands for an offset that is not known, and for a committed offset
// that does not exist.
const NoOffset int64 = -1

// Func is what an operation asked for.
type Func uint8

// The functions. Each says which fields of Op it fills beside process, outcome and
// times.
const (
	// Send: Sends. Records of one Send are independent of each other: where their
	// outcomes differ, or may, each is a Send of its own.
	Send Func = iota + 1
	// Poll: Polls, and Rebalanced where the group moved since the last Poll.
	Poll
	// Txn: Sends and Polls of one transaction; its outcome is that of its end.
	Txn
	// Assign: Keys, all that the process reads from now on; a key that stays keeps
	// its position.
	Assign
	// Subscribe: Group; the process reads what the group gives it, from the group's
	// committed offsets.
	Subscribe
	// Commit: Group, Generation, Positions: committed offsets, each the next to read.
	Commit
	// Committed: Group, Generation, Positions: the committed offsets that the group's
	// coordinator answered, NoOffset where there are none.
	Committed
	// Ends: Positions: the ends that ListOffsets (latest, read_uncommitted) answered. The
	// high watermark in a fetch does not belong here: a new leader may know less of it
	// for a moment, and ListOffsets is what waits until it knows. Where groups read
	// transactions the final reads have to ask for it: what a group committed may lie
	// after the last record.
	Ends
	// Delete: Keys, whose records may be gone from Invoke on.
	Delete
	// Crash: the process ended, as planned or not.
	Crash
	// Final: all faults are healed and the reads that must see everything begin.
	Final
)

// Funcs is how many functions there are, and one, for tables by Func.
const Funcs = int(Final) + 1

// String is the name of the function in lower case.
func (f Func) String() string {
	names := [Funcs]string{"", "send", "poll", "txn", "assign", "subscribe", "commit", "committed", "ends", "delete", "crash", "final"}
	if f == 0 || int(f) >= len(names) {
		return fmt.Sprintf("func %d", uint8(f))
	}
	return names[f]
}

// Outcome is what the process knows of its operation's effect.
type Outcome uint8

// The outcomes.
const (
	OK   Outcome = iota + 1 // it happened, between Invoke and Complete
	Info                    // unknown: it may have happened, or may at any time
	Fail                    // it certainly did not and will not happen
)

// Outcomes is how many outcomes there are, and one, for tables by Outcome.
const Outcomes = int(Fail) + 1

// String is the name of the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case Info:
		return "info"
	case Fail:
		return "fail"
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// Record is one record as its sender or a reader knows it.
type Record struct {
	Key    Key
	Offset int64 // NoOffset where a sender was not told
	Value  Value
}

// Position is a position in a key: a committed offset or an end.
type Position struct {
	Key    Key
	Offset int64
}

// Op is one completed operation of one process.
type Op struct {
	Process          Process
	Func             Func
	Outcome          Outcome
	Invoke, Complete int64 // nanoseconds since the run began, by one clock for all processes

	Sends      []Record   // in the order sent
	Polls      []Record   // in the order in which the reader got them
	Keys       []Key      // Assign, Delete
	Rebalanced []Key      // keys that came or went since the process's last Poll
	Group      Group      // Subscribe, Commit, Committed
	Generation int32      // of the member that asks, the member epoch in the newer protocol
	Positions  []Position // Commit, Committed, Ends
}

// Window is the time that one fault lasted.
type Window struct {
	Start, End int64  // nanoseconds since the run began
	Kind       string // as "kill" or "partition"
	Target     string // as "leader, node 2"
	// Survivable tells that a majority is up and connected, so that the cluster
	// has to go on.
	Survivable bool
}

// String is kind and target; a target that begins with its kind says it alone.
func (w Window) String() string {
	first, _, _ := strings.Cut(w.Kind, "+") // of faults that come together
	switch {
	case w.Target == "":
		return w.Kind
	case strings.HasPrefix(w.Target, first):
		return w.Target
	}
	return w.Kind + " " + w.Target
}

// Header is what a history says of its run.
type Header struct {
	Seed      uint64 // of workload and faults
	StartUnix int64  // nanoseconds since 1970
	Command   string // repeats the run
}

// Name is what a key stands for, as "orders-3".
type Name struct {
	Key  Key
	Name string
}

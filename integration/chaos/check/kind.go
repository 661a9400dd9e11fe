package check

import "fmt"

// Kind is a kind of anomaly.
type Kind uint8

// The kinds; the table below says what each means.
const (
	LostWrite Kind = iota
	Unseen
	Duplicate
	InconsistentOffsets
	UnknownValue
	AbortedRead
	PrecommittedRead
	IntPollSkip
	IntNonmonotonicPoll
	PollSkip
	NonmonotonicPoll
	GroupPollSkip
	GroupNonmonotonicPoll
	IntSendSkip
	IntNonmonotonicSend
	NonmonotonicSend
	Reordered
	G0
	G0Process
	G0Realtime
	G1c
	G1cProcess
	G1cRealtime
	G1cWW
	G1cWWProcess
	G1cWWRealtime
	CommittedBack
	CommittedUnknown
	CommittedAboveEnd
	EndBack
	ReplicasDiffer
	NoProgress
	RealtimeLag
	kinds // how many there are
)

type kindRow struct {
	name    string
	fails   bool
	meaning string
}

// row is what there is to say of a kind. A kind that does not fail a history is
// reported for what it tells.
func (k Kind) row() kindRow {
	return [kinds]kindRow{
		LostWrite:             {"lost-write", true, "a record was acknowledged and never read, though later ones were"},
		Unseen:                {"unseen", true, "a record was acknowledged and not read by the end of the final reads"},
		Duplicate:             {"duplicate", true, "one value at two offsets"},
		InconsistentOffsets:   {"inconsistent-offsets", true, "one offset held two values"},
		UnknownValue:          {"unknown-value", true, "a value was read that nobody sent"},
		AbortedRead:           {"G1a", true, "a value was read whose send certainly failed"},
		PrecommittedRead:      {"precommitted-read", true, "a transaction read what it had itself sent"},
		IntPollSkip:           {"int-poll-skip", true, "one poll left out a record between two others"},
		IntNonmonotonicPoll:   {"int-nonmonotonic-poll", true, "one poll went back"},
		PollSkip:              {"poll-skip", true, "a poll left out records after the last one that its process had read"},
		NonmonotonicPoll:      {"nonmonotonic-poll", true, "a poll went back behind what its process had read"},
		GroupPollSkip:         {"group-poll-skip", false, "a group member left out records, perhaps read by another"},
		GroupNonmonotonicPoll: {"group-nonmonotonic-poll", false, "a group member read records again"},
		IntSendSkip:           {"int-send-skip", false, "other records lie between two of one transaction"},
		IntNonmonotonicSend:   {"int-nonmonotonic-send", true, "records of one operation are not in the order sent"},
		NonmonotonicSend:      {"nonmonotonic-send", true, "records of one process are not in the order sent"},
		Reordered:             {"reordered", true, "a record was sent after another was acknowledged, and lies before it"},
		G0:                    {"G0", false, "a cycle of writes"},
		G0Process:             {"G0-process", false, "a cycle of writes and the order of a process"},
		G0Realtime:            {"G0-realtime", false, "a cycle of writes and real time"},
		G1c:                   {"G1c", true, "a cycle of reads: transactions that each saw the other"},
		G1cProcess:            {"G1c-process", true, "a cycle of reads and the order of a process"},
		G1cRealtime:           {"G1c-realtime", true, "a cycle of reads and real time"},
		G1cWW:                 {"G1c-ww", false, "a cycle of reads and writes"},
		G1cWWProcess:          {"G1c-ww-process", false, "a cycle of reads, writes and the order of a process"},
		G1cWWRealtime:         {"G1c-ww-realtime", false, "a cycle of reads, writes and real time"},
		CommittedBack:         {"committed-back", true, "a committed offset went back, or an acknowledged commit was lost"},
		CommittedUnknown:      {"committed-unknown", true, "a committed offset that nobody committed"},
		CommittedAboveEnd:     {"committed-above-end", true, "a committed offset above any end of the log"},
		EndBack:               {"end-back", true, "a client was told an end below what it knew to be committed"},
		ReplicasDiffer:        {"replicas-differ", true, "replicas hold different bytes below the high watermark"},
		NoProgress:            {"no-progress", true, "nothing of a key was acknowledged for too long, though a majority was up"},
		RealtimeLag:           {"realtime-lag", false, "a reader was behind what was known to be committed for too long"},
	}[k]
}

// Kinds are all kinds in the order of a report.
func Kinds() []Kind {
	out := make([]Kind, kinds)
	for i := range out {
		out[i] = Kind(i)
	}
	return out
}

// String is the kind's name.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return k.row().name
}

// Fails tells whether one such anomaly makes a history invalid.
func (k Kind) Fails() bool { return k.row().fails }

// FollowsLoss tells whether such anomalies can come of the loss of a log's end alone:
// of records that are gone, and of others that have come to lie where they lay.
func (k Kind) FollowsLoss() bool {
	switch k {
	case LostWrite, Unseen, Duplicate, InconsistentOffsets, IntPollSkip, IntNonmonotonicPoll, PollSkip, NonmonotonicPoll,
		NonmonotonicSend, Reordered, CommittedAboveEnd, EndBack:
		return true
	}
	return !k.Fails()
}

// Meaning is one sentence without a full stop.
func (k Kind) Meaning() string { return k.row().meaning }

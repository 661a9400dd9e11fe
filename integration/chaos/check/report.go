package check

import (
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// Verdict is what becomes of a history.
type Verdict string

// The verdicts. Unknown: nothing is wrong with what was seen, but too little was. Lossy:
// the ends of logs were lost, under faults that may lose them, and nothing else is wrong.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid"
	Unknown Verdict = "unknown"
	Lossy   Verdict = "lossy"
)

// Options are what the caller knows beside the history.
type Options struct {
	// ProgressMax bounds the time without an acknowledgement of each key to which
	// somebody sends, under no fault or survivable ones. Zero checks nothing.
	ProgressMax time.Duration
	// LagMax is when realtime-lag is reported. Zero stands for 10 s.
	LagMax time.Duration
	// Replicas are what the nodes hold after the end.
	Replicas []Replica
	// Failures are what else went wrong and makes the run invalid, as a panic in a
	// node's log.
	Failures []string
	// MayLose tells that the faults were such that the ends of logs may be lost.
	MayLose bool
	// Losses are what clients were told of that.
	Losses []string
}

// Replica is what one node holds of one key: the checksum of the bytes of the
// offsets [First, End), which the caller chooses equal for all nodes.
type Replica struct {
	Key        history.Key
	Node       string
	First, End int64
	Sum        string
}

// Report is all that was found.
type Report struct {
	Header   history.Header
	Verdict  Verdict
	Failures []string // Options.Failures
	Losses   []string // Options.Losses
	MayLose  bool     // Options.MayLose
	Problems []string // why a history without anomalies is not valid
	Found    []Found  // kinds with at least one anomaly, failing kinds first
	// Untried are the kinds for which there was nothing to look at, as those of
	// transactions where there were none.
	Untried []Kind

	Counts    [history.Funcs][history.Outcomes]int64 // operations
	Sent      [history.Outcomes]int64                // records sent, by outcome
	Read      int64                                  // records read, again and again
	Recovered int64                                  // records of unknown outcome that were read
	Keys      int
	Names     map[history.Key]string
	Length    time.Duration // the last completion
	FinalAt   time.Duration // when the final reads began, negative if they did not

	Series     Series
	Resolution time.Duration // shorter times without acknowledgement are not kept
	Injections []Injection
	// Consumed is how many times members of groups got a record: Consumed[n] is the
	// number of (process, record) pairs with n deliveries.
	Consumed []int64
	MaxLag   time.Duration // of any reader, see RealtimeLag
}

// Found is what was found of one kind.
type Found struct {
	Kind  Kind
	Count int64
	Worst []Anomaly // at most eight, the worst first
}

// Anomaly is one case.
type Anomaly struct {
	Kind   Kind
	Key    history.Key
	Offset int64 // around which it is, or history.NoOffset
	At     time.Duration
	Size   int64 // by which cases of a kind are ranked
	Text   string
	reader history.Process // of kinds that one reader shows again and again: the reader, of which the worst case stays
	again  bool            // reader is set
	Near   *Neighbourhood  // nil where no offset is known
	Cycle  []Step          // of kinds of cycles: each step must come before the next, and the last before the first
}

// Injection is one fault and what it cost.
type Injection struct {
	history.Window
	// Silence is the longest time without an acknowledgement of one key, from the
	// fault's start on, that began before the fault ended; SilenceKey is that key.
	Silence    time.Duration
	SilenceKey history.Key
	// AllSilence is the same for all keys together.
	AllSilence time.Duration
}

// Neighbourhood is what every operation saw of the offsets around an anomaly.
type Neighbourhood struct {
	First   int64    // offset of the first column
	Columns int      // how many offsets
	Rows    []Row    // in order of completion
	Omitted int      // rows left out of the middle
	marked  []cell   // values by offset, to place sends that were not told theirs
	Log     []string // the values that the log holds at each column, "" for none
}

// Row is one operation in a Neighbourhood.
type Row struct {
	Step
	Cells []string // what it sent or read at each offset, "" for nothing
}

// Step is one operation in words.
type Step struct {
	Op      uint32 // number among the operations with records
	Process history.Process
	Func    history.Func
	Outcome history.Outcome
	Invoke  time.Duration
	Took    time.Duration
	Edge    string // of a cycle: why it comes before the next
	Text    string // of a cycle: what it sent and read
}

// Name is what a key is called.
func (r *Report) Name(k history.Key) string {
	if n, ok := r.Names[k]; ok {
		return n
	}
	return keyText(k)
}

// Failed are the kinds that make the history invalid.
func (r *Report) Failed() []Found {
	var out []Found
	for _, f := range r.Found {
		if f.Kind.Fails() {
			out = append(out, f)
		}
	}
	return out
}

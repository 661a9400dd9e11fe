package work

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// Book is the record of one run.
type Book struct {
	w     *history.Writer
	start time.Time

	mu       sync.Mutex
	process  history.Process
	keys     []*Topic // by key, from 1
	ends     map[history.Key]int64
	acked    map[string]uint64 // sends that were acknowledged, by workload
	lastAck  map[history.Key]time.Time
	problems map[string]int // what the history cannot say, and how often
	losses   map[string]int // what clients say of records that are gone
	failed   error          // of the history
}

// Topic is one incarnation of a topic.
type Topic struct {
	Name       string
	Partitions int
	first      history.Key // the key of partition 0
}

// Key is the key of a partition.
func (t *Topic) Key(partition int32) history.Key { return t.first + history.Key(partition) }

// NewBook begins a record on a history whose times count from start.
func NewBook(w *history.Writer, start time.Time) *Book {
	return &Book{w: w, start: start, ends: map[history.Key]int64{}, acked: map[string]uint64{}, lastAck: map[history.Key]time.Time{}, problems: map[string]int{}, losses: map[string]int{}, keys: make([]*Topic, 1)}
}

// Topic gives keys to an incarnation of a topic.
func (b *Book) Topic(name string, partitions int, incarnation int) *Topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &Topic{Name: name, Partitions: partitions, first: history.Key(len(b.keys))}
	for p := range partitions {
		b.keys = append(b.keys, t)
		label := fmt.Sprintf("%s-%d", name, p)
		if incarnation > 1 {
			label += fmt.Sprintf(" (%d)", incarnation)
		}
		b.noteLocked(b.w.Name(history.Name{Key: t.first + history.Key(p), Name: label}))
	}
	return t
}

func (b *Book) noteLocked(err error) {
	if b.failed == nil {
		b.failed = err
	}
}

// Now is the time of the history.
func (b *Book) Now() int64 { return int64(time.Since(b.start)) }

// Process begins a new process.
func (b *Book) Process() history.Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process++
	return b.process
}

// add records a completed operation.
func (b *Book) add(op *history.Op) {
	op.Complete = b.Now()
	err := b.w.Append(op)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteLocked(err)
}

// Window records a fault that has ended.
func (b *Book) Window(w history.Window) {
	err := b.w.Window(w)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteLocked(err)
}

// acknowledged notes an acknowledged send.
func (b *Book) acknowledged(workload string, k history.Key, offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked[workload]++
	b.lastAck[k] = time.Now()
	b.ends[k] = max(b.ends[k], offset+1)
}

// Acked returns how many sends were acknowledged, by workload and in all.
func (b *Book) Acked() (map[string]uint64, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n uint64
	for _, a := range b.acked {
		n += a
	}
	return maps.Clone(b.acked), n
}

// LastAck is when a send to a key was acknowledged last; zero when none was.
func (b *Book) LastAck(k history.Key) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastAck[k]
}

// end is the greatest end that is known of a key.
func (b *Book) end(k history.Key) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends[k]
}

// ForgetEnds forgets the ends that were ever known: after a loss that had to be
// expected, what is read back ends where the logs end now.
func (b *Book) ForgetEnds() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.ends)
}

// Problem notes something wrong that the history has no form for.
func (b *Book) Problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count(b.problems, fmt.Sprintf(format, args...))
}

// loss notes that a client was told that records are gone.
func (b *Book) loss(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count(b.losses, fmt.Sprintf(format, args...))
}

func count(texts map[string]int, text string) {
	if texts[text] > 0 || len(texts) < 100 {
		texts[text]++
	}
}

// Problems lists what is wrong beside the history, with the history's own error.
func (b *Book) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := counted(b.problems)
	if b.failed != nil {
		out = append(out, b.failed.Error())
	}
	return out
}

// Losses lists what clients were told of records that are gone. In a run under faults
// that must not lose any, each is a problem.
func (b *Book) Losses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return counted(b.losses)
}

func counted(texts map[string]int) []string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(texts)) {
		if n := texts[p]; n > 1 {
			p = fmt.Sprintf("%s (%d times)", p, n)
		}
		out = append(out, p)
	}
	return out
}

// payloadHead is the part of a record before its filling.
const payloadHead = 16

// payload makes the bytes of a record: key, size, value, then bytes that follow from the value.
func payload(k history.Key, v history.Value, size int) []byte {
	size = max(size, payloadHead)
	p := make([]byte, payloadHead, size)
	binary.BigEndian.PutUint32(p, uint32(k))
	binary.BigEndian.PutUint32(p[4:], uint32(size))
	binary.BigEndian.PutUint64(p[8:], uint64(v))
	for x := uint64(v); len(p) < size; {
		x = x*6364136223846793005 + 1442695040888963407
		p = append(p, byte(x>>56))
	}
	return p
}

// parsePayload reads a record of partition key k.
func parsePayload(k history.Key, p []byte) (history.Value, error) {
	if len(p) < payloadHead {
		return 0, fmt.Errorf("a record of %d bytes is none of ours", len(p))
	}
	v := history.Value(binary.BigEndian.Uint64(p[8:]))
	if was := history.Key(binary.BigEndian.Uint32(p)); was != k {
		return v, fmt.Errorf("a record of key %d was read from key %d", was, k)
	}
	if size := int(binary.BigEndian.Uint32(p[4:])); size != len(p) {
		return v, fmt.Errorf("a record of key %d has %d bytes, not %d", k, len(p), size)
	}
	for x, i := uint64(v), payloadHead; i < len(p); i++ {
		x = x*6364136223846793005 + 1442695040888963407
		if p[i] != byte(x>>56) {
			return v, fmt.Errorf("a record of key %d has other bytes than were sent", k)
		}
	}
	return v, nil
}

package check

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

var sizeOps = flag.Int("ops", 200_000, "operations of the history whose memory is measured; 10000000 is what has to fit in 2 GB")

const (
	// bytesPerOp is what 2 GB allow for each of ten million operations.
	bytesPerOp = 2 << 30 / 10_000_000
	// bytesFixed is what small histories take whatever they hold.
	bytesFixed = 64 << 20
)

// TestSize checks how much memory a history takes: half sends, half polls, one
// operation in twenty a transaction, final reads by four readers.
func TestSize(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	runtime.GC()
	peak := measurePeak()
	began := time.Now()
	r, err := Analyze(func() (*history.Reader, error) { return generate(seed, *sizeOps) }, Options{LagMax: time.Hour}) // its readers are too slow
	most := peak()
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Valid || len(r.Found) > 0 {
		t.Errorf("got %s", describe(r))
	}
	ops := int64(0)
	for _, row := range r.Counts {
		for _, n := range row {
			ops += n
		}
	}
	t.Logf("%d operations, %d records sent, %d read: peak heap %.0f MB, %.0f bytes an operation, %v",
		ops, r.Sent[history.OK], r.Read, float64(most)/(1<<20), float64(most)/float64(ops), time.Since(began).Round(time.Millisecond))
	if limit := ops*bytesPerOp + bytesFixed; int64(most) > limit {
		t.Errorf("peak heap %d, allowed are %d", most, limit)
	}
}

// measurePeak watches the heap until its result is called, which is the peak.
func measurePeak() func() uint64 {
	var (
		most uint64
		wg   sync.WaitGroup
	)
	stop := make(chan struct{})
	wg.Go(func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	return func() uint64 {
		close(stop)
		wg.Wait()
		return most
	}
}

// generate streams a long history without anomalies.
func generate(seed uint64, ops int) (*history.Reader, error) {
	pr, pw := io.Pipe()
	go func() {
		w, err := history.NewWriter(pw, history.Header{Seed: seed})
		if err == nil {
			g := generator{w: w, rnd: rand.New(rand.NewPCG(seed, 3))}
			g.run(ops)
			err = w.Flush()
		}
		pw.CloseWithError(err)
	}()
	return history.NewReader(pr)
}

const (
	genKeys    = 64
	genSenders = 24
	genReaders = 24
)

type generator struct {
	w    *history.Writer
	rnd  *rand.Rand
	now  int64
	logs [genKeys][]history.Value
	sent [genSenders]uint64
	at   [genReaders + 4 + genSenders][genKeys]int // of readers, of final readers, of senders in their transactions
}

func (g *generator) add(op history.Op) {
	g.now += 50_000
	op.Invoke, op.Complete = g.now-g.rnd.Int64N(300_000), g.now+g.rnd.Int64N(300_000)
	op.Outcome = history.OK
	if err := g.w.Append(&op); err != nil {
		panic(fmt.Sprintf("a pipe that is read: %v", err))
	}
}

func (g *generator) send(p int) history.Record {
	k := g.rnd.IntN(genKeys)
	g.sent[p]++
	v := history.NewValue(history.Process(p), g.sent[p])
	g.logs[k] = append(g.logs[k], v)
	return history.Record{Key: history.Key(k), Offset: int64(len(g.logs[k]) - 1), Value: v}
}

func (g *generator) read(reader, k, most int) (rs []history.Record) {
	for at := &g.at[reader][k]; *at < len(g.logs[k]) && len(rs) < most; *at++ {
		rs = append(rs, history.Record{Key: history.Key(k), Offset: int64(*at), Value: g.logs[k][*at]})
	}
	return rs
}

func (g *generator) assign(reader int) {
	op := history.Op{Process: history.Process(genSenders + reader), Func: history.Assign}
	for k := range history.Key(genKeys) {
		op.Keys = append(op.Keys, k)
	}
	g.add(op)
}

func (g *generator) run(ops int) {
	for r := range genReaders {
		g.assign(r)
	}
	for i := range ops / 2 {
		p, r := i%genSenders, i%genReaders
		op := history.Op{Process: history.Process(p), Func: history.Send}
		if i%10 == 0 {
			op.Func = history.Txn
			op.Polls = g.read(genReaders+4+p, g.rnd.IntN(genKeys), 2)
			op.Sends = append(op.Sends, g.send(p))
		}
		op.Sends = append(op.Sends, g.send(p))
		g.add(op)
		g.add(history.Op{Process: history.Process(genSenders + r), Func: history.Poll, Polls: g.read(r, g.rnd.IntN(genKeys), 4)})
	}
	g.add(history.Op{Process: genSenders + genReaders + 5, Func: history.Final})
	for r := genReaders; r < genReaders+4; r++ {
		g.assign(r)
		for k := range genKeys {
			for g.at[r][k] < len(g.logs[k]) {
				g.add(history.Op{Process: history.Process(genSenders + r), Func: history.Poll, Polls: g.read(r, k, 500)})
			}
		}
	}
}

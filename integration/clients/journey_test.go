package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/cluster"
)

const (
	journeyTopic      = "journey"
	journeyGroup      = "travellers"
	journeyPartitions = 6
	perCodec          = 1000 // records with each codec
	throughKill       = 12000
	perGroupStep      = 2000
	commitPatience    = 15 * time.Second
	roomForEvents     = 1 << 17 // more than any member prints: its output is taken even while nobody looks
	journeyTimeout    = 6 * time.Minute
)

// span is a range of record numbers that were produced together.
type span struct {
	first, end int
	codec      string
}

// journey takes one client through every step against one cluster of three.
type journey struct {
	*cluster.Cluster
	client
	t     *testing.T
	ctx   context.Context
	cl    *kgo.Client
	adm   *kadm.Client
	spans []span
	acked map[int]bool
	next  int
	began time.Time
}

// travel runs the whole journey of a client.
func travel(t *testing.T, c client) {
	j := newJourney(t, c)
	for _, codec := range append([]string{"none"}, c.codecs...) {
		j.makeRecords(codec, perCodec, nil)
	}
	var dead *cluster.Node
	j.makeRecords("none", throughKill, func() error {
		parts, err := j.Partitions(j.ctx, j.cl, journeyTopic)
		if err != nil {
			return err
		}
		dead = j.Node(parts[0].Leader)
		return dead.Kill()
	})
	j.revive(dead)
	j.verify()
	j.readBack()
	j.groupAlone()
	j.groupThroughKill()
	j.verify()
}

func newJourney(t *testing.T, c client) *journey {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), journeyTimeout)
	t.Cleanup(cancel)
	j := &journey{Cluster: startCluster(ctx, t), client: c, t: t, ctx: ctx, acked: map[int]bool{}, began: time.Now()}
	var err error
	if j.cl, err = j.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.cl.Close)
	j.adm = kadm.NewClient(j.cl)
	if _, err := j.adm.CreateTopic(ctx, journeyPartitions, 3, nil, journeyTopic); err != nil {
		t.Fatal(err)
	}
	return j
}

// startCluster starts three nodes and shows the ends of their logs when the test fails.
func startCluster(ctx context.Context, t *testing.T, extra ...string) *cluster.Cluster {
	t.Helper()
	return startNodes(ctx, t, 3, extra...)
}

// startNodes is startCluster with another number of nodes.
func startNodes(ctx context.Context, t *testing.T, n int, extra ...string) *cluster.Cluster {
	t.Helper()
	dir := t.TempDir()
	bin, err := cluster.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(bin, dir, n, extra...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.Nodes {
				log, _ := os.ReadFile(n.Log) // only to be shown
				t.Logf("log of node %d:\n%s", n.ID, log[max(0, len(log)-3000):])
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// logf says something together with the time since the journey began.
func (j *journey) logf(format string, args ...any) {
	j.t.Helper()
	j.t.Logf("%6.1f s  %s", time.Since(j.began).Seconds(), fmt.Sprintf(format, args...))
}

func (j *journey) bootstrap() string { return strings.Join(j.Brokers(), ",") }

func (j *journey) revive(n *cluster.Node) {
	j.t.Helper()
	if n == nil {
		j.t.Fatal("no node was killed")
	}
	if err := j.StartNode(n); err != nil {
		j.t.Fatal(err)
	}
	if err := j.AwaitNodes(j.ctx, len(j.Nodes)); err != nil { // its own answer too: the others may not have missed it
		j.t.Fatal(err)
	}
	if err := j.AwaitISR(j.ctx, j.cl, journeyTopic, len(j.Nodes)); err != nil {
		j.t.Fatal(err)
	}
}

// makeRecords lets the client produce count records and wants all of them
// acknowledged. middle, if given, runs while it produces, after a third.
func (j *journey) makeRecords(codec string, count int, middle func() error) {
	j.t.Helper()
	start := time.Now()
	s := span{first: j.next, end: j.next + count, codec: codec}
	j.next = s.end
	j.spans = append(j.spans, s)
	disturb := func() {
		if m := middle; m != nil {
			middle = nil
			if err := m(); err != nil {
				j.t.Error(err)
			}
		}
	}
	var stdin io.Reader
	if j.feed != nil {
		stdin = &tripwire{in: j.feed(s.first, count), after: count / 3, trip: disturb}
	}
	p, err := j.launch(j.ctx, j.produce(j.bootstrap(), journeyTopic, codec, s.first, count), stdin)
	if err != nil {
		j.t.Fatal(err)
	}
	acks := 0
	for e := range p.events {
		if e.Step == "error" {
			j.t.Errorf("produce: %s", e.Error)
		}
		if e.Step != "acked" {
			continue
		}
		j.acked[e.N] = true
		if acks++; acks == count/3 {
			disturb()
		}
	}
	if err := p.wait(); err != nil {
		j.t.Fatalf("produce with %s: %v\n%s", codec, err, p.tail())
	}
	if j.feed != nil {
		for n := s.first; n < s.end; n++ {
			j.acked[n] = true
		}
	} else if acks != count {
		j.t.Errorf("produce with %s: %d of %d records were acknowledged\n%s", codec, acks, count, p.tail())
	}
	j.logf("produced %d records with %s in %s", count, codec, time.Since(start).Round(time.Millisecond))
}

// tripwire passes lines on and calls trip once, after some of them.
type tripwire struct {
	in    io.Reader
	after int
	trip  func()
}

func (w *tripwire) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	before := w.after
	w.after -= bytes.Count(p[:n], []byte("\n"))
	if before > 0 && w.after <= 0 {
		w.trip()
	}
	return n, err
}

// ends are the log ends of the topic's partitions.
func (j *journey) ends() map[int32]int64 {
	j.t.Helper()
	out := map[int32]int64{}
	j.retry("list the log ends", func() error {
		listed, err := j.adm.ListEndOffsets(j.ctx, journeyTopic)
		if err != nil {
			return err
		}
		for p, o := range listed[journeyTopic] {
			out[p] = o.Offset
		}
		return listed.Error()
	})
	return out
}

// retry does what may fail while leaders and coordinators move.
func (j *journey) retry(what string, do func() error) {
	j.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-j.ctx.Done():
			j.t.Fatalf("%s: %v", what, err)
		}
	}
}

// verify reads the topic with franz-go: every acknowledged record is there, in
// the codec asked for, and once when the client is idempotent.
func (j *journey) verify() {
	j.t.Helper()
	cl, err := j.Client(kgo.ConsumeTopics(journeyTopic))
	if err != nil {
		j.t.Fatal(err)
	}
	defer cl.Close()
	want := total(j.ends())
	seen, codecs := map[int]int{}, map[int]string{}
	for got := int64(0); got < want; {
		fs := cl.PollFetches(j.ctx)
		if err := j.ctx.Err(); err != nil {
			j.t.Fatalf("read %d of %d records: %v", got, want, err)
		}
		for it := fs.RecordIter(); !it.Done(); got++ {
			r := it.Next()
			n, err := number(string(r.Value))
			if err != nil {
				j.t.Fatalf("partition %d offset %d: %v", r.Partition, r.Offset, err)
			}
			seen[n]++
			codecs[n] = codecName(r.Attrs.CompressionType())
		}
	}
	lost, twice := 0, 0
	for n := range j.acked {
		if seen[n] == 0 {
			lost++
		}
		if seen[n] > 1 {
			twice++
		}
	}
	if lost > 0 {
		j.t.Errorf("%d acknowledged records are lost", lost)
	}
	if twice > 0 && j.idempotent {
		j.t.Errorf("%d records are there twice", twice)
	}
	for _, s := range j.spans {
		if !j.anyCodec && codecs[s.first] != s.codec {
			j.t.Errorf("record %d was to be sent with %s and lies there with %s", s.first, s.codec, codecs[s.first])
		}
	}
	j.logf("%d records acknowledged, %d in the log, %d more than once", len(j.acked), want, twice)
}

func codecName(c uint8) string {
	return []string{"none", "gzip", "snappy", "lz4", "zstd"}[c]
}

func total(m map[int32]int64) (sum int64) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// flock is some processes of one client that run until they are told to stop.
type flock struct {
	j    *journey
	name string
	all  []*program
	in   chan event // what all of them print
	// low and high are the lowest and highest offset read, by partition; seen counts each.
	low, high map[int32]int64
	seen      map[int32]map[int64]int
	byMember  map[int]int
	failed    map[string]int // commits, by what the clients say
	moves     []event        // what members were given and gave up, of those that say so
}

func (j *journey) newFlock(name string) *flock {
	return &flock{j: j, name: name, in: make(chan event, roomForEvents), low: map[int32]int64{}, high: map[int32]int64{}, seen: map[int32]map[int64]int{}, byMember: map[int]int{}, failed: map[string]int{}}
}

// add starts one more process.
func (f *flock) add(argv []string) {
	f.j.t.Helper()
	p, err := f.j.launch(f.j.ctx, argv, nil)
	if err != nil {
		f.j.t.Fatal(err)
	}
	member := len(f.all)
	f.all = append(f.all, p)
	go func() { // ends with the program's stdout, or with the journey
		for e := range p.events {
			e.member = member
			select {
			case f.in <- e:
			case <-f.j.ctx.Done():
			}
		}
		select {
		case f.in <- event{Step: "ended", member: member}:
		case <-f.j.ctx.Done():
		}
	}()
}

func (f *flock) take(e event) {
	switch e.Step {
	case "error":
		f.j.t.Errorf("%s: member %d: %s", f.name, e.member, e.Error)
	case "assigned", "revoked":
		f.moves = append(f.moves, e)
	case "not committed": // as may be while members come and go
		f.failed[e.Error]++
	case "read":
		p := e.Partition
		if f.seen[p] == nil {
			f.seen[p], f.low[p] = map[int64]int{}, e.Offset
		}
		f.seen[p][e.Offset]++
		f.low[p], f.high[p] = min(f.low[p], e.Offset), max(f.high[p], e.Offset)
		f.byMember[e.member]++
	}
}

// until takes events until done holds. A process that ends before is an error.
func (f *flock) until(what string, done func() bool) {
	f.j.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond) // done may look at the cluster
	defer tick.Stop()
	for !done() {
		select {
		case e := <-f.in:
			if e.Step == "ended" {
				f.j.t.Fatalf("%s: member %d ended before %s\n%s", f.name, e.member, what, f.all[e.member].tail())
			}
			f.take(e)
			f.drain()
		case <-tick.C:
		case <-f.j.ctx.Done():
			for i, p := range f.all {
				f.j.logf("%s: member %d read %d records and said\n%s", f.name, i, f.byMember[i], p.tail())
			}
			f.j.t.Fatalf("%s: waited for %s: read up to %v of %v", f.name, what, f.high, f.j.lastEnds())
		}
	}
}

// drain takes what is at hand, so that done is not asked for every record.
func (f *flock) drain() {
	for range 200 {
		select {
		case e := <-f.in:
			if e.Step == "ended" {
				f.j.t.Fatalf("%s: member %d ended by itself\n%s", f.name, e.member, f.all[e.member].tail())
			}
			f.take(e)
		default:
			return
		}
	}
}

// lastEnds asks for the log ends when the journey's own time is over.
func (j *journey) lastEnds() any {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	listed, err := j.adm.ListEndOffsets(ctx, journeyTopic)
	if err != nil {
		return err
	}
	var out strings.Builder
	listed.Each(func(o kadm.ListedOffset) { fmt.Fprintf(&out, "%d:%d ", o.Partition, o.Offset) })
	return out.String()
}

// allRead tells whether every offset from starts to ends has been read.
func (f *flock) allRead(starts, ends map[int32]int64) bool {
	for p, end := range ends {
		if f.high[p] < end-1 && end > starts[p] {
			return false
		}
		if int64(len(f.seen[p])) < end-starts[p] {
			return false
		}
	}
	return true
}

// stop asks every process to end and waits until all have.
func (f *flock) stop() {
	f.j.t.Helper()
	for _, p := range f.all {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			f.j.t.Errorf("%s: %v", f.name, err)
		}
	}
	for ended := 0; ended < len(f.all); {
		select {
		case e := <-f.in:
			if e.Step == "ended" {
				ended++
			}
			f.take(e)
		case <-f.j.ctx.Done():
			f.j.t.Fatalf("%s: did not end with SIGTERM", f.name)
		}
	}
	for i, p := range f.all {
		if err := p.wait(f.j.stopCodes...); err != nil {
			f.j.t.Errorf("%s: member %d ended with %v\n%s", f.name, i, err, p.tail())
		}
	}
}

// readBack lets the client read the whole topic without a group.
func (j *journey) readBack() {
	j.t.Helper()
	if j.read == nil {
		return
	}
	start := time.Now()
	f := j.newFlock("read")
	f.add(j.read(j.bootstrap(), journeyTopic))
	ends := j.ends()
	f.until("everything read", func() bool { return f.allRead(nil, ends) })
	f.stop()
	for p, seen := range f.seen {
		for o, times := range seen {
			if times > 1 {
				j.t.Fatalf("read: partition %d offset %d was delivered %d times", p, o, times)
			}
		}
	}
	j.logf("read %d records in %s", total(ends), time.Since(start).Round(time.Millisecond))
}

// committed are the group's committed offsets.
func (j *journey) committed() map[int32]int64 {
	j.t.Helper()
	out := map[int32]int64{}
	j.retry("fetch the committed offsets", func() error {
		cl, err := j.Client() // one that has not heard of a coordinator that is dead: franz-go keeps to it for minutes
		if err != nil {
			return err
		}
		defer cl.Close()
		rows, err := kadm.NewClient(cl).FetchOffsets(j.ctx, journeyGroup)
		for p, r := range rows[journeyTopic] {
			out[p] = r.At
		}
		return err
	})
	return out
}

// letCommit gives clients that commit from time to time the time to do so while their
// coordinator is new: what some of them try once more as they leave, they try once.
func (j *journey) letCommit(f *flock, ends map[int32]int64) {
	j.t.Helper()
	until, next := time.Now().Add(commitPatience), time.Now()
	f.until("everything committed", func() bool {
		now := time.Now()
		if now.Before(next) {
			return false
		}
		next = now.Add(500 * time.Millisecond)
		return now.After(until) || maps.Equal(j.committed(), ends)
	})
}

// wantCommitted wants the commit of each partition at its end.
func (j *journey) wantCommitted(ends map[int32]int64) {
	j.t.Helper()
	got := j.committed()
	for p, end := range ends {
		if got[p] != end && end > 0 {
			j.t.Errorf("the group has committed %d in partition %d, want its end %d", got[p], p, end)
		}
	}
}

// groupAlone reads the topic as a group of one, which commits and leaves.
func (j *journey) groupAlone() {
	j.t.Helper()
	start := time.Now()
	f := j.newFlock("group of one")
	f.add(j.group(j.bootstrap(), journeyTopic, journeyGroup))
	ends := j.ends()
	f.until("everything read", func() bool { return f.allRead(nil, ends) })
	f.stop()
	j.wantCommitted(ends)
	j.logf("a group of one read and committed %d records in %s", total(ends), time.Since(start).Round(time.Millisecond))
}

// groupThroughKill joins with two members, which must resume from the commit,
// kills the coordinator, produces more and wants everything read and committed.
func (j *journey) groupThroughKill() {
	j.t.Helper()
	start := time.Now()
	before := j.committed()
	j.makeRecords("none", perGroupStep, nil)
	f := j.newFlock("group of two")
	f.add(j.group(j.bootstrap(), journeyTopic, journeyGroup))
	f.add(j.group(j.bootstrap(), journeyTopic, journeyGroup))
	f.until("two members in a stable group", func() bool { return j.stable(2) })
	middle := j.ends()
	f.until("the records since the commit read", func() bool { return f.allRead(before, middle) })
	for p, low := range f.low {
		if low != before[p] {
			j.t.Errorf("the group resumed partition %d at %d, the commit was %d", p, low, before[p])
		}
	}
	coordinator, err := j.coordinator()
	if err != nil {
		j.t.Fatal(err)
	}
	j.logf("two members resumed after %s; killing coordinator %d", time.Since(start).Round(time.Millisecond), coordinator.ID)
	if err := coordinator.Kill(); err != nil {
		j.t.Fatal(err)
	}
	atKill := f.byMember
	f.byMember = map[int]int{}
	j.makeRecords("none", perGroupStep, nil)
	ends := j.ends()
	f.until("the records since the kill read", func() bool { return f.allRead(before, ends) })
	j.logf("records by member before the kill %v, after it %v", atKill, f.byMember)
	j.letCommit(f, ends)
	f.stop()
	j.logf("both members left")
	j.wantCommitted(ends)
	j.revive(coordinator)
	j.logf("group of two took %s", time.Since(start).Round(time.Millisecond))
}

func (j *journey) coordinator() (*cluster.Node, error) {
	r := j.adm.FindGroupCoordinators(j.ctx, journeyGroup)[journeyGroup]
	if r.Err != nil {
		return nil, r.Err
	}
	return j.Node(r.NodeID), nil
}

// stable tells whether the group has that many members, each with partitions.
func (j *journey) stable(members int) bool {
	if j.consumer {
		g, err := j.adm.DescribeConsumerGroups(j.ctx, journeyGroup)
		if err != nil {
			return false
		}
		d := g[journeyGroup]
		for _, m := range d.Members {
			if len(m.Assignment) == 0 {
				return false
			}
		}
		return d.State == "Stable" && len(d.Members) == members
	}
	g, err := j.adm.DescribeGroups(j.ctx, journeyGroup)
	if err != nil {
		return false
	}
	d := g[journeyGroup]
	return d.State == "Stable" && len(d.Members) == members && len(d.AssignedPartitions()[journeyTopic]) == journeyPartitions
}

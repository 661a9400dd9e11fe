package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// The cluster of these tests: this node is broker 1 and leads partition 0 of each
// topic, broker 2 leads partition 1, and broker 3 is fenced.
const (
	selfID  fsm.BrokerID = 1
	otherID fsm.BrokerID = 2
	deadID  fsm.BrokerID = 3
)

// testImage builds an Image by commands.
type testImage struct {
	t      testing.TB
	mu     sync.Mutex
	im     *fsm.Image
	owners []*groups // which follow who owns slots
}

func newTestImage(t testing.TB) *testImage {
	ti := &testImage{t: t, im: fsm.NewImage()}
	ti.apply(fsm.InitCluster{ClusterID: "test-cluster"})
	for _, id := range []fsm.BrokerID{selfID, otherID, deadID} {
		r := ti.apply(fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: [16]byte{1}, Rack: "r" + string('0'+rune(id)),
			Client: fsm.Endpoint{Host: "host" + string('0'+rune(id)), Port: 9000 + int32(id)}})
		if id != deadID {
			ti.apply(fsm.UnfenceBroker{ID: id, Epoch: fsm.BrokerEpoch(r.Epoch)})
		}
	}
	return ti
}

func (ti *testImage) apply(c fsm.Command) fsm.Result {
	ti.mu.Lock()
	defer ti.mu.Unlock()
	im, r := fsm.Apply(ti.im, ti.im.Index()+1, c)
	if r.Err != nil {
		ti.t.Fatalf("apply %+v: %v", c, r.Err)
	}
	ti.im = im
	return r
}

func (ti *testImage) image() *fsm.Image {
	ti.mu.Lock()
	defer ti.mu.Unlock()
	return ti.im
}

// topic creates a topic; partition i is led by the i-th of leaders.
func (ti *testImage) topic(name string, configs [][2]string, leaders ...fsm.BrokerID) fsm.TopicID {
	n := ti.image().Index()
	c := fsm.CreateTopic{ID: fsm.TopicID{0xaa, byte(n >> 8), byte(n)}, Name: name, Configs: configs}
	for _, l := range leaders {
		c.Partitions = append(c.Partitions, fsm.NewPartition{
			Replicas: []fsm.BrokerID{selfID, otherID, deadID}, ISR: []fsm.BrokerID{selfID, otherID}, Leader: l})
	}
	ti.apply(c)
	return c.ID
}

// fakeReplica is a partition that appends to memory. What is appended is visible
// at once unless hold is set.
type fakeReplica struct {
	leader fsm.BrokerID
	epoch  batch.Epoch
	log    *storage.Log // when set, batches go there and reads come from there

	mu       sync.Mutex
	end      batch.Offset           // guarded by mu
	hw       batch.Offset           // guarded by mu
	hold     bool                   // guarded by mu; appends do not raise hw
	err      error                  // guarded by mu; of Append and Read
	waitErr  error                  // guarded by mu; of waiting
	moved    chan struct{}          // guarded by mu; closed and replaced when hw moves
	watchers map[*Watcher]bool      // guarded by mu
	appends  int                    // guarded by mu
	diverged *EpochEnd              // guarded by mu
	prefers  *fsm.BrokerID          // guarded by mu; sent to clients of another rack
	asked    ReadRequest            // guarded by mu; the last one
	offsets  map[int64]OffsetResult // guarded by mu; by timestamp
}

func newFakeReplica() *fakeReplica {
	return &fakeReplica{leader: selfID, epoch: 5, moved: make(chan struct{}), watchers: make(map[*Watcher]bool)}
}

func (f *fakeReplica) Append(b batch.Batch, _ int16) (Ticket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return Ticket{}, f.err
	}
	t := Ticket{LogStart: 0, LeaderEpoch: f.epoch, w: f}
	if f.log != nil {
		got, err := f.log.AppendLeader(b, f.epoch)
		if err != nil {
			return Ticket{}, err
		}
		t.Appended = got
	} else {
		t.First, t.Last, t.AppendTime = f.end, f.end+batch.Offset(b.LastDelta()), -1
		if b.LogAppendTime() {
			t.AppendTime = b.MaxTimestamp()
		}
	}
	f.appends++
	f.end = max(f.end, t.Last+1)
	if !f.hold {
		f.raiseLocked(f.end)
	}
	return t, nil
}

func (f *fakeReplica) raiseLocked(hw batch.Offset) {
	f.hw = hw
	close(f.moved)
	f.moved = make(chan struct{})
	for w := range f.watchers {
		w.signal()
	}
}

// raise moves the high watermark to the end.
func (f *fakeReplica) raise() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.raiseLocked(f.end)
}

// set changes the replica under its lock, and wakes whoever waits.
func (f *fakeReplica) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.raiseLocked(f.hw)
}

func (f *fakeReplica) await(ctx context.Context, t Ticket) error {
	for {
		f.mu.Lock()
		err, done, moved := f.waitErr, f.hw > t.Last, f.moved
		f.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeReplica) Read(r ReadRequest) (ReadResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := ReadResult{HW: f.hw, LSO: f.hw, Diverging: f.diverged}
	f.asked = r
	if f.prefers != nil && r.Rack != "" {
		got.Preferred = f.prefers
		return got, nil
	}
	switch {
	case f.err != nil:
		return ReadResult{}, f.err
	case r.LeaderEpoch != batch.NoEpoch && r.LeaderEpoch < f.epoch:
		return ReadResult{}, errFencedEpoch
	case r.LeaderEpoch > f.epoch:
		return ReadResult{}, errUnknownEpoch
	case r.Offset < 0 || r.Offset > f.end:
		return ReadResult{}, errOutOfRange
	case f.log == nil || r.Offset >= f.hw || f.diverged != nil:
		return got, nil
	}
	var err error
	got.Range, err = f.log.Read(r.Offset, f.hw, r.MaxBytes)
	return got, err
}

func (f *fakeReplica) OffsetFor(ts int64, e batch.Epoch, _ bool) (OffsetResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return OffsetResult{}, f.err
	}
	if e != batch.NoEpoch && e < f.epoch {
		return OffsetResult{}, errFencedEpoch
	}
	if r, ok := f.offsets[ts]; ok {
		return r, nil
	}
	return OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}, nil
}

func (f *fakeReplica) Leader() (fsm.BrokerID, batch.Epoch) { return f.leader, f.epoch }

func (f *fakeReplica) Watch(w *Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers[w] = true
}

func (f *fakeReplica) Unwatch(w *Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}

func (f *fakeReplica) watched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

// fakeAdmin records what it is asked for.
type fakeAdmin struct {
	mu      sync.Mutex
	created []controller.NewTopic  // guarded by mu
	deleted []fsm.TopicID          // guarded by mu
	answer  controller.TopicResult // guarded by mu; for every topic
	err     error                  // guarded by mu
	block   bool                   // guarded by mu; wait for the context
}

func (a *fakeAdmin) CreateTopics(ctx context.Context, topics []controller.NewTopic) ([]controller.TopicResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.created = append(a.created, topics...)
	return a.results(ctx, len(topics))
}

func (a *fakeAdmin) DeleteTopics(ctx context.Context, ids []fsm.TopicID) ([]controller.TopicResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deleted = append(a.deleted, ids...)
	return a.results(ctx, len(ids))
}

func (a *fakeAdmin) results(ctx context.Context, n int) ([]controller.TopicResult, error) {
	if a.block {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out := make([]controller.TopicResult, n)
	for i := range out {
		out[i] = a.answer
	}
	return out, a.err
}

// testServer is a server on a loopback port, with fakes behind it.
type testServer struct {
	t        testing.TB
	srv      *server
	image    *testImage
	admin    *fakeAdmin
	cluster  *fakeCluster
	addr     string
	logs     *lockedBuffer
	mu       sync.Mutex
	replicas map[fsm.TopicPartition]replica // guarded by mu
	nextPID  int64                          // guarded by mu
	pidErr   error                          // guarded by mu
	leader   fsm.BrokerID                   // guarded by mu; the controller
	syncs    int                            // guarded by mu; how often the controller was asked
	// meanwhile is what else happens before the Image is as new as the controller's. An error is that
	// the controller does not say how new that is.
	meanwhile func() error // guarded by mu
}

// lockedBuffer is a log that a test reads while others write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newTestServer starts a server with defaults that change may alter.
func newTestServer(t testing.TB, change func(*serverConfig)) *testServer {
	t.Helper()
	return newTestServerOf(t, change, testGroupConfig())
}

// newTestServerOf is newTestServer with settings of its own for groups.
func newTestServerOf(t testing.TB, change func(*serverConfig), groups GroupConfig) *testServer {
	t.Helper()
	ts := &testServer{t: t, image: newTestImage(t), admin: &fakeAdmin{}, cluster: &fakeCluster{}, replicas: make(map[fsm.TopicPartition]replica),
		nextPID: 1000, leader: selfID, logs: &lockedBuffer{}}
	c := defaultServerConfig()
	if change != nil {
		change(&c)
	}
	b := &backend{
		self:       selfID,
		image:      ts.image.image,
		sync:       ts.sync,
		partition:  ts.partition,
		admin:      ts.admin,
		controller: ts.controller,
		producerID: ts.producerID,
		groups:     newTestGroups(t, ts.image, groups),
		ops:        ts.operations(),
		metrics:    newMetrics(),
		log:        hclog.New(&hclog.LoggerOptions{Output: ts.logs, Level: hclog.Warn}),
	}
	srv, err := newServer(c, b)
	if err != nil {
		t.Fatal(err)
	}
	ts.srv = srv
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := srv.Close(ctx); err != nil {
			t.Errorf("close the server: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if free := srv.budget.unused(); free != c.RequestMemory {
			t.Errorf("%d bytes of the request budget are unused after the end, want %d", free, c.RequestMemory)
		}
		if free := srv.inflater.budget.unused(); free != c.InflateMemory {
			t.Errorf("%d bytes of the inflate budget are unused after the end, want %d", free, c.InflateMemory)
		}
	})
	return ts
}

func (ts *testServer) partition(tp fsm.TopicPartition) replica {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.replicas[tp]
}

// sync stands in for controller.Node.Sync.
func (ts *testServer) sync(context.Context) error {
	ts.mu.Lock()
	ts.syncs++
	meanwhile := ts.meanwhile
	ts.mu.Unlock()
	if meanwhile == nil {
		return nil
	}
	return meanwhile()
}

// during sets what happens while the controller is asked.
func (ts *testServer) during(meanwhile func() error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.meanwhile = meanwhile
}

// asked is how often the controller was asked.
func (ts *testServer) asked() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.syncs
}

func (ts *testServer) controller() (fsm.BrokerID, bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.leader, ts.leader != fsm.NoBroker
}

func (ts *testServer) producerID(context.Context) (int64, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.nextPID++
	return ts.nextPID, ts.pidErr
}

// topic creates a topic, with a replica here for each partition that this node leads.
func (ts *testServer) topic(name string, configs [][2]string, leaders ...fsm.BrokerID) (fsm.TopicID, []*fakeReplica) {
	id := ts.image.topic(name, configs, leaders...)
	var out []*fakeReplica
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for i, l := range leaders {
		if l == selfID {
			r := newFakeReplica()
			ts.replicas[fsm.TopicPartition{Topic: id, Partition: int32(i)}] = r
			out = append(out, r)
		}
	}
	return id, out
}

// wireClient is one connection of a client.
type wireClient struct {
	t    testing.TB
	c    net.Conn
	corr int32
	enc  *kmsg.RequestFormatter
}

func (ts *testServer) dial() *wireClient {
	ts.t.Helper()
	c, err := net.Dial("tcp", ts.addr)
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = c.Close() })
	return &wireClient{t: ts.t, c: c, enc: kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))}
}

// send writes one request and returns its correlation id.
func (w *wireClient) send(req kmsg.Request) int32 {
	w.t.Helper()
	w.corr++
	w.raw(w.enc.AppendRequest(nil, req, w.corr))
	return w.corr
}

func (w *wireClient) raw(p []byte) {
	w.t.Helper()
	if _, err := w.c.Write(p); err != nil {
		w.t.Fatalf("send: %v", err)
	}
}

// receive reads the response to req.
func (w *wireClient) receive(req kmsg.Request, corr int32) kmsg.Response {
	w.t.Helper()
	got, body, err := w.frame()
	if err != nil {
		w.t.Fatalf("receive the response of %s: %v", kmsg.NameForKey(req.Key()), err)
	}
	if got != corr {
		w.t.Fatalf("correlation id %d, want %d", got, corr)
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && resp.Key() != int16(wire.KeyApiVersions) {
		body = body[1:] // an empty set of tags
	}
	if err := resp.ReadFrom(body); err != nil {
		w.t.Fatalf("decode the response of %s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

// frame reads one response: correlation id and the rest.
func (w *wireClient) frame() (int32, []byte, error) {
	_ = w.c.SetReadDeadline(time.Now().Add(20 * time.Second))
	var head [8]byte
	if _, err := io.ReadFull(w.c, head[:]); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	_, err := io.ReadFull(w.c, body)
	return int32(binary.BigEndian.Uint32(head[4:])), body, err
}

// ask sends req and reads its response.
func (w *wireClient) ask(req kmsg.Request) kmsg.Response {
	w.t.Helper()
	return w.receive(req, w.send(req))
}

// closed waits until the server has closed the connection, without an answer.
func (w *wireClient) closed() {
	w.t.Helper()
	_ = w.c.SetReadDeadline(time.Now().Add(20 * time.Second))
	var p [1]byte
	n, err := w.c.Read(p[:])
	if n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("read %d bytes, %v; want the connection closed", n, err)
	}
}

// records is a batch of n records of size bytes each.
func records(n, size int) []byte {
	b := batch.NewBuilder(time.Now().UnixMilli())
	for range n {
		b.Add(time.Now().UnixMilli(), nil, bytes.Repeat([]byte{'x'}, size))
	}
	return b.Bytes()
}

func newBenchServer(b *testing.B) *testServer { return newTestServer(b, nil) }

package broker

import (
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

const (
	// fetchIDs is the first version of Fetch with topic ids in place of names.
	fetchIDs = 13
	// fetchSessionsFrom is the first version with sessions, and with an error for the
	// whole request.
	fetchSessionsFrom = 7
	// fetchRacks is the first version whose clients name their rack and may be sent
	// to a follower.
	fetchRacks = 11
	// fetchNew as session epoch asks for a new session, fetchFinal for none.
	fetchNew   = 0
	fetchFinal = -1
	// fetchWaitMax bounds how long a Fetch waits, whatever its client asks for.
	fetchWaitMax = 10 * time.Minute
	// fetchKeep is how many results a waiting Fetch keeps. More take much memory for
	// the time they are of use.
	fetchKeep = 2000
	// isolationCommitted is the isolation level read_committed.
	isolationCommitted = 1
)

// fetch is one Fetch request. All of it happens in stage two: it opens what it
// reads, which is a session or a set of its own, reads until there is an answer,
// and makes it.
type fetch struct {
	conn    *Conn
	version int16
	req     *wire.FetchRequest
	im      *fsm.Image

	session *fetchSession // the one that an incremental request has taken, else nil
	own     fetchSet      // of a full request
	set     *fetchSet     // the one of the two that is read
	got     []fetchGot    // what was read last and is worth an answer, in order
	size    int           // bytes of records that were read last
	dropped bool          // got was too large to be kept while waiting

	maxBytes int
	minBytes int
	deadline time.Time
}

// fetchGot is what was read of one part of the set.
type fetchGot struct {
	part int // index in the set's parts
	ReadResult
	err error
}

func handleFetch(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.FetchRequest)
	wait := min(time.Duration(max(req.MaxWaitMs, 0))*time.Millisecond, fetchWaitMax)
	f := &fetch{
		conn:     c,
		version:  h.Version,
		req:      req,
		maxBytes: min(int(max(req.MaxBytes, 0)), c.srv.config.FetchMaxBytes),
		deadline: time.Now().Add(wait),
	}
	f.minBytes = min(int(max(req.MinBytes, 0)), f.maxBytes)
	return f.run
}

// run reads, waits for what is asked for, and answers.
func (f *fetch) run(ctx context.Context) Reply {
	f.im = f.conn.srv.backend.image()
	f.own.ids = f.version >= fetchIDs
	if refusal := f.open(); refusal != wire.None {
		return f.refuse(refusal)
	}
	defer f.close()
	f.set.resolve(f.conn.srv.backend, f.im)
	if !f.read() && time.Now().Before(f.deadline) {
		f.wait(ctx)
		if f.dropped {
			f.read()
		}
	}
	f.judge(ctx)
	return f.reply(ctx)
}

// judge has offsets past the end of a log that this node leads called out of range only if no other
// node has led it since: a client without leader epochs would begin anew, where its
// offset may be one of a successor's. It is told that this node does not lead.
func (f *fetch) judge(ctx context.Context) {
	var leads func(fsm.TopicPartition, batch.Epoch) bool
	for i := range f.got {
		got := &f.got[i]
		p := &f.set.parts[got.part]
		if !errors.Is(got.err, errOutOfRange) || p.offset < got.LogStart {
			continue
		}
		was, ok := f.im.Partition(f.set.tp(p))
		if !ok || was.Leader != f.conn.srv.backend.self {
			continue // a follower's word sends a client to the leader
		}
		if leads == nil {
			leads = f.conn.srv.backend.stillLeads(ctx)
		}
		if !leads(f.set.tp(p), was.LeaderEpoch) {
			got.err = errNotLeader
		}
	}
}

// open finds what is to be read, or says what is wrong with the request as a
// whole. A full request names all its partitions, and ends the session it names;
// an incremental one has a session, and names what changes in it.
func (f *fetch) open() wire.Code {
	sessions := f.conn.srv.sessions
	f.set = &f.own
	switch {
	case f.req.Replica() >= 0:
		return wire.InvalidRequest // followers use the peer listener
	case f.req.SessionEpoch == fetchNew || f.req.SessionEpoch == fetchFinal:
		if f.req.SessionID != 0 {
			sessions.drop(f.req.SessionID)
		}
		if f.makesSession() {
			f.own.update(f.req.Topics, nil)
		} else {
			f.own.list(f.req.Topics)
		}
		return wire.None
	}
	s, refusal := sessions.take(f.conn, f.req.SessionID, f.req.SessionEpoch, f.own.ids)
	if refusal != wire.None {
		return refusal
	}
	s.set.update(f.req.Topics, f.req.ForgottenTopicsData)
	if len(s.set.parts) == 0 {
		sessions.drop(s.id) // nothing is left to read: the answer is that of a full request for nothing
		return wire.None
	}
	if !sessions.resized(s) {
		return wire.FetchSessionIDNotFound // the client begins anew, without a session
	}
	f.session, f.set = s, &s.set
	return wire.None
}

// makesSession tells whether the request is a full one that asks for a session.
func (f *fetch) makesSession() bool {
	return f.version >= fetchSessionsFrom && f.req.SessionEpoch == fetchNew
}

// close ends the use of the session.
func (f *fetch) close() {
	if f.session != nil {
		f.conn.srv.sessions.give(f.session)
	}
}

// refuse answers with one error; versions that have no place for it get it in each partition.
func (f *fetch) refuse(c wire.Code) Reply {
	resp := &wire.FetchResponse{}
	if f.version >= fetchSessionsFrom {
		resp.ErrorCode = f.conn.srv.code(c)
		return Reply{Body: resp}
	}
	f.own.list(f.req.Topics)
	for i := range f.own.parts {
		f.got = append(f.got, fetchGot{part: i, err: c})
	}
	resp.Responses, _, _ = f.answers(&hints{im: f.im})
	return Reply{Body: resp}
}

// read reads all parts in order, and tells whether the answer is ready.
//
// Until something was read, a partition's first batch is returned whole even
// above the limits, so that a consumer always gets on; after that a batch that
// does not fit is left out.
func (f *fetch) read() (ready bool) {
	f.release()
	f.dropped = false
	left, size := f.maxBytes, 0
	ready = len(f.set.parts) == 0
	for n := range f.set.parts {
		i := f.set.at(n)
		p := &f.set.parts[i]
		got := fetchGot{part: i}
		limit := min(int(max(p.maxBytes, 0)), left)
		f.readPart(p, limit, &got)
		bytes := got.Range.Len()
		if bytes > limit && size > 0 {
			got.drop()
			bytes = 0
		}
		size += bytes
		left = max(left-bytes, 0)
		ready = ready || f.settled(&got)
		if f.session == nil || p.news(&got) {
			f.got = append(f.got, got)
		}
	}
	f.size = size
	return ready || size >= f.minBytes
}

func (f *fetch) readPart(p *fetchPart, limit int, got *fetchGot) {
	if p.replica == nil {
		got.err = f.set.missing(p, f.im)
		return
	}
	got.ReadResult, got.err = p.replica.Read(ReadRequest{
		Offset:           p.offset,
		MaxBytes:         limit,
		LeaderEpoch:      p.leaderEpoch,
		LastFetchedEpoch: p.lastEpoch,
		Committed:        f.committed(),
		AnyReplica:       f.version >= fetchRacks,
		Rack:             f.req.RackID,
	})
}

// settled tells whether waiting would add nothing to what was read of one part:
// an error, or more than was read, which only another request can have. An offset
// that a follower has not heard to be committed is worth waiting for.
func (f *fetch) settled(got *fetchGot) bool {
	if got.err != nil {
		return !errors.Is(got.err, errOffsetNotAvailable)
	}
	more := got.Range.Len() > 0 && got.Range.End() < f.bound(got.ReadResult)
	return got.Diverging != nil || got.Preferred != nil || more
}

// news tells whether a session's client has to be told of what was read.
func (p *fetchPart) news(got *fetchGot) bool {
	return got.err != nil || got.Range.Len() > 0 || got.Diverging != nil || got.Preferred != nil ||
		got.HW != p.hw || got.LogStart != p.logStart
}

func (f *fetch) committed() bool { return f.req.IsolationLevel == isolationCommitted }

// bound is the end of what the client may read.
func (f *fetch) bound(r ReadResult) batch.Offset {
	if f.committed() {
		return r.LSO
	}
	return r.HW
}

// wait reads again whenever something has changed, until the answer is ready,
// the time is over, or nobody wants it any more.
func (f *fetch) wait(ctx context.Context) {
	w := f.conn.watch()
	defer func() {
		for i := range f.set.parts {
			f.set.parts[i].replica.Unwatch(w)
		}
	}()
	over := time.NewTimer(time.Until(f.deadline))
	defer over.Stop()
	rest := time.NewTimer(fetchRestMax)
	defer rest.Stop()
	pace := fetchPace{want: f.minBytes, had: f.size, since: time.Now()}
	for {
		began := time.Now()
		for i := range f.set.parts {
			f.set.parts[i].replica.Watch(w) // all have one: a partition without ends the wait before it begins
		}
		if f.read() {
			return
		}
		if len(f.got) > fetchKeep {
			f.release()
			f.got, f.dropped = nil, true
		}
		rest.Reset(pace.rest(began, time.Now(), f.size))
		if !f.pause(ctx, over.C, rest.C, nil) || !f.pause(ctx, over.C, nil, w.C()) {
			return
		}
	}
}

// pause waits for the end of the rest or a signal, whichever is given. It returns
// false when the Fetch is to be answered with what it has.
func (f *fetch) pause(ctx context.Context, over, rest <-chan time.Time, signal <-chan struct{}) bool {
	var ended <-chan struct{}
	if f.session != nil {
		ended = f.session.ended
	}
	select {
	case <-signal:
		return true
	case <-rest:
		return true
	case <-over:
	case <-ended: // it holds memory that is no longer accounted for
	case <-f.conn.srv.drain:
	case <-ctx.Done():
	}
	return false
}

// reply makes the answer of what was read last, and the session if one is asked for.
func (f *fetch) reply(ctx context.Context) Reply {
	srv := f.conn.srv
	h := hints{im: srv.backend.image()}
	resp := &wire.FetchResponse{}
	var ranges []storage.Range
	var size int
	resp.Responses, ranges, size = f.answers(&h)
	resp.NodeEndpoints = h.nodes
	switch {
	case f.session != nil:
		f.set.told(f.got)
		resp.SessionID = f.session.id
	case f.makesSession() && len(f.own.parts) > 0 && ctx.Err() == nil:
		f.own.told(f.got)
		if s := srv.sessions.add(f.conn, f.own); s != nil {
			resp.SessionID = s.id
		}
	}
	srv.metrics.topics.bytesOut.Add(float64(size))
	return Reply{Body: resp, Ranges: ranges}
}

// answers makes the topics and partitions of the answer, in the order in which
// they were read, with the records and their size. The ranges in got are given away.
func (f *fetch) answers(h *hints) (topics []wire.FetchTopicResponse, ranges []storage.Range, size int) {
	if len(f.got) == 0 {
		return nil, nil, 0
	}
	parts := make([]wire.FetchPartitionResponse, len(f.got))
	last := int32(-1) // the topic of the part before
	for i := range f.got {
		got, out := &f.got[i], &parts[i]
		p := &f.set.parts[got.part]
		if p.topic != last {
			ref := f.set.topics[p.topic].ref
			topics = append(topics, wire.FetchTopicResponse{Topic: ref.name, TopicID: ref.id, Partitions: parts[i:i:i]})
			last = p.topic
		}
		f.fill(p, got, out, h)
		if n := got.Range.Len(); n > 0 {
			ranges = append(ranges, got.Range)
			size += n
		}
		t := &topics[len(topics)-1]
		t.Partitions = parts[i-len(t.Partitions) : i+1]
	}
	return topics, ranges, size
}

// fill writes what was read of a partition into its answer.
func (f *fetch) fill(p *fetchPart, got *fetchGot, out *wire.FetchPartitionResponse, h *hints) {
	*out = wire.DefaultFetchPartitionResponse()
	out.PartitionIndex, out.HighWatermark = p.partition, -1
	if got.err != nil {
		f.fail(p, got, out, h)
		return
	}
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = got.HW, got.LSO, got.LogStart
	if f.committed() {
		out.AbortedTransactions = []wire.AbortedTransaction{} // there are no transactions
	}
	if d := got.Diverging; d != nil {
		out.DivergingEpoch = &wire.EpochEndOffset{Epoch: d.Epoch, EndOffset: d.End}
	}
	if got.Preferred != nil {
		out.PreferredReadReplica = int32(*got.Preferred)
	}
	out.RecordsSize = got.Range.Len()
}

// fail writes a partition's error into its answer.
func (f *fetch) fail(p *fetchPart, got *fetchGot, out *wire.FetchPartitionResponse, h *hints) {
	out.ErrorCode = f.conn.srv.code(got.err)
	moved := errors.Is(got.err, errNotLeader) || errors.Is(got.err, errFencedEpoch)
	if moved && f.version >= 16 {
		out.CurrentLeader = h.leader(f.set.tp(p))
	}
	if errors.Is(got.err, errOutOfRange) && got.LogStart > p.offset && p.offset >= 0 {
		out.LogStartOffset = got.LogStart // a client of a follower goes back to the leader for what is below
	}
}

// told notes what the client of a session will know when it has the answer, and
// lets the next request begin after the last part that gave records.
func (s *fetchSet) told(got []fetchGot) {
	first := s.first
	for i := range got {
		g := &got[i]
		p := &s.parts[g.part]
		p.hw, p.logStart = g.HW, g.LogStart
		if g.err != nil || g.Diverging != nil {
			p.hw, p.logStart = -1, -1 // so that it is told when all is well again
		}
		if g.Range.Len() > 0 {
			first = (g.part + 1) % len(s.parts)
		}
	}
	s.first = first
}

// release gives back what was read.
func (f *fetch) release() {
	for i := range f.got {
		f.got[i].drop()
	}
	f.got = f.got[:0]
}

// drop gives back the records that were read, and keeps the rest of the result.
func (g *fetchGot) drop() {
	if g.Range.Len() > 0 {
		g.Range.Release()
	}
	g.Range = storage.Range{}
}

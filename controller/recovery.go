package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/codec"
)

const (
	// questionTimeout bounds the wait for a broker to say where its logs end.
	questionTimeout = 2 * time.Second
	// questionPause is how long a broker that did not answer is left alone.
	questionPause = 200 * time.Millisecond
	// namedMax is how many partitions are named in one line of the log.
	namedMax = 16
)

// errNotActed means that a broker has yet to act on the Image that it is asked about.
var errNotActed = errors.New("the broker has not acted on the metadata yet")

// LogEnds tells where this broker's logs of some partitions end, one answer each in the same
// order; a log that it does not have ends at 0 in no epoch. False means that it has not acted
// yet on the Image of that index, and may be appending to one of them.
type LogEnds func(index uint64, tps []fsm.TopicPartition) ([]elect.LogEnd, bool)

// HandleLogEnds registers what answers the controller's question where this broker's logs
// end. It must be registered before the broker wants to be unfenced.
func (n *Node) HandleLogEnds(fn LogEnds) { n.logEnds.Store(&fn) }

// Recoveries is how many partitions this node, as controller, has given a leader that may lack
// acknowledged records, since the process started.
func (n *Node) Recoveries() int64 { return n.recoveries.Load() }

// recoverLeaders finds leaders for partitions of which only the last members are left, by
// asking them for their logs. It returns when it should be called again at the latest.
func (t *term) recoverLeaders() (time.Duration, error) {
	for _, d := range t.decideRecoveries() {
		if err := t.commitRecoveries(d); err != nil {
			return 0, err
		}
	}
	if tps := t.recovery.Damaged(); len(tps) > 0 {
		t.log.Error("every copy of these partitions that could lead is damaged; they wait until one is repaired, or a leader is elected uncleanly on request",
			"count", len(tps), "partitions", t.names(tps))
	}
	for _, q := range t.recovery.Questions(time.Now()) {
		t.ask(q)
	}
	at, more := t.recovery.WakeAt()
	if !more {
		return time.Hour, nil
	}
	return max(0, time.Until(at)), nil
}

// decideRecoveries returns what is to be committed, in parts that fit an entry.
func (t *term) decideRecoveries() [][]elect.Recovered {
	all := t.recovery.Decide(t.n.Image())
	var parts [][]elect.Recovered
	for len(all) > 0 {
		n := min(len(all), changesPerCommand)
		parts = append(parts, all[:n])
		all = all[n:]
	}
	return parts
}

// commitRecoveries elects leaders at the risk of loss, and says so. Nothing else is committed
// by this controller in between, so that an incarnation which answered is still there: only
// its loop commits registrations.
func (t *term) commitRecoveries(part []elect.Recovered) error {
	items := make([]fsm.LeaderChange, len(part))
	for i, d := range part {
		items[i] = d.Change
	}
	a, err := t.commit(fsm.ChangeLeaders{Items: items})
	if err != nil {
		return err
	}
	skipped := a.results[0].Skipped
	if len(skipped) > 0 {
		t.elected = nil // look at all of them again
	}
	var done []elect.Recovered
	for i, d := range part {
		if !slices.Contains(skipped, i) {
			done = append(done, d)
		}
	}
	t.reportRecovered("nobody who surely has all records is left: leaders were chosen by the ends of their logs (broker:last epoch:end), and acknowledged records may be lost", done)
	return nil
}

// reportRecovered says which leaders were elected at the risk of loss.
func (t *term) reportRecovered(what string, done []elect.Recovered) {
	if len(done) == 0 {
		return
	}
	var named []string
	for _, d := range done[:min(len(done), namedMax)] {
		named = append(named, fmt.Sprintf("%s leader %d of %s", t.name(d.Change.TP), d.Change.Leader, endsText(d.Ends)))
	}
	t.n.recoveries.Add(int64(len(done)))
	t.log.Error(what, "count", len(done), "partitions", named)
}

func endsText(ends []elect.LogEnd) string {
	s := ""
	for i, e := range ends {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%d:%d:%d", e.Broker, e.Epoch, e.End)
		if e.Damaged {
			s += " (damaged)"
		}
	}
	return s
}

func (t *term) name(tp fsm.TopicPartition) string {
	topic, ok := t.n.Image().Topic(tp.Topic)
	if !ok {
		return fmt.Sprintf("%x-%d", tp.Topic, tp.Partition)
	}
	return fmt.Sprintf("%s-%d", topic.Name, tp.Partition)
}

// names lists the first partitions of a list.
func (t *term) names(tps []fsm.TopicPartition) []string {
	var out []string
	for _, tp := range tps[:min(len(tps), namedMax)] {
		out = append(out, t.name(tp))
	}
	return out
}

// ask gets one question answered, on a goroutine; the loop takes the answer.
func (t *term) ask(q elect.Question) {
	t.n.goFunc(func() {
		answers, err := t.n.question(t.ctx, q)
		t.post(t.ctx, func() {
			if err == nil {
				t.recovery.Answered(q, answers, time.Now())
				return
			}
			t.log.Debug("a broker did not say where its logs end", "broker", q.Broker, "partitions", len(q.Partitions), "error", err)
			t.recovery.Failed(q, time.Now())
		})
	})
}

// question asks a broker, which may be this node.
func (n *Node) question(ctx context.Context, q elect.Question) ([]elect.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	req := &logEndsRequest{id: q.Broker, epoch: q.Epoch, index: q.Index, tps: q.Partitions}
	if q.Broker == n.id.NodeID {
		rep, err := n.answerLogEnds(req)
		if err != nil {
			return nil, err
		}
		return rep.answers, nil
	}
	c, err := n.DialPeer(ctx, q.Broker, KindControl, n.session.Epoch())
	if err != nil {
		return nil, err
	}
	rep, err := askOver(ctx, c, req)
	if err != nil {
		return nil, fmt.Errorf("ask broker %d where its logs end: %w", q.Broker, err)
	}
	return rep.(*logEndsReply).answers, nil
}

// askOver makes the only call on a connection, and closes it.
func askOver(ctx context.Context, c net.Conn, req request) (reply, error) {
	defer c.Close() //nolint:errcheck // the answer is in, or the connection is of no use
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(encodeFrame(1, uint8(req.op()), req)); err != nil {
		return nil, err
	}
	_, s, body, err := readFrame(c)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return readReply(req.op(), callAnswer{status(s), body})
}

// answerLogEnds answers for this broker, in its present incarnation.
func (n *Node) answerLogEnds(r *logEndsRequest) (*logEndsReply, error) {
	epoch := n.session.Epoch()
	if r.id != n.id.NodeID || r.epoch != epoch {
		return nil, fmt.Errorf("broker %d at epoch %d was asked, this is %d at %d", r.id, r.epoch, n.id.NodeID, epoch)
	}
	fn := n.logEnds.Load()
	if fn == nil || n.Image().Index() < r.index {
		return nil, errNotActed
	}
	ends, ok := (*fn)(r.index, r.tps)
	if !ok {
		return nil, errNotActed
	}
	if len(ends) != len(r.tps) {
		panic(fmt.Sprintf("BUG: %d log ends for %d partitions", len(ends), len(r.tps)))
	}
	rep := &logEndsReply{answers: make([]elect.Answer, len(ends))}
	for i, e := range ends {
		e.Broker = n.id.NodeID
		rep.answers[i] = elect.Answer{TP: r.tps[i], End: e, Epoch: epoch}
	}
	return rep, nil
}

// logEndsRequest asks one incarnation of a broker where its logs end; any node answers it.
type logEndsRequest struct {
	id    fsm.BrokerID
	epoch fsm.BrokerEpoch
	// index is that of the Image that the broker must have acted on.
	index uint64
	tps   []fsm.TopicPartition
}

func (*logEndsRequest) op() op           { return opLogEnds }
func (*logEndsRequest) repeatable() bool { return true }
func (r *logEndsRequest) code(c *codec.Coder) {
	codeBroker(c, &r.id)
	codeBrokerEpoch(c, &r.epoch)
	c.Uint64(&r.index)
	codec.ArrayOf(c, &r.tps, 20, codeTP)
}

// sizeAnswer is that of an answer in memory.
const sizeAnswer = 56 + 16*len(elect.EarlierEpochs{})

// logEndsReply answers for each partition asked about.
type logEndsReply struct{ answers []elect.Answer }

func (r *logEndsReply) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.answers, sizeAnswer, func(c *codec.Coder, a *elect.Answer) {
		codeTP(c, &a.TP)
		codeBroker(c, &a.End.Broker)
		codeBrokerEpoch(c, &a.Epoch)
		c.Int32((*int32)(&a.End.Epoch))
		c.Int64((*int64)(&a.End.End))
		c.Bool(&a.End.Damaged)
		for i := range a.End.Earlier {
			c.Int32((*int32)(&a.End.Earlier[i].Epoch))
			c.Int64((*int64)(&a.End.Earlier[i].End))
		}
	})
}

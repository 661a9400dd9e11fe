package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"
)

const (
	// groupPoll is how often a member that is to stop at the end looks whether it is there.
	groupPoll = 100 * time.Millisecond
	// groupFarewell bounds the last commit and the leaving of the group.
	groupFarewell = 5 * time.Second
)

// groupReader prints records as a member of a group. What it has printed is
// committed, and nothing else: before partitions go to another member, and at the end.
type groupReader struct {
	topic string
	group string
	left  int64 // records still to print; 0 for no limit
	form  *kgo.RecordFormatter
	out   *bufio.Writer
	buf   []byte
	warn  func(error)

	mu     sync.Mutex
	joined bool           // guarded by mu; partitions have been assigned once, be it none
	spans  map[int32]span // guarded by mu; of the partitions that this member has
	ends   map[int32]int64
}

// consumeGroup is consume with -g.
func (e *Env) consumeGroup(c *cli.Context, topic string, form *kgo.RecordFormatter, isolation kgo.IsolationLevel) error {
	if c.IsSet("partition") {
		return usagef("-p and -g exclude each other: the group decides who reads which partition")
	}
	reset, err := groupReset(c.String("offset"))
	if err != nil {
		return err
	}
	r := &groupReader{
		topic: topic, group: c.String("group"), left: c.Int64("num"), form: form,
		out: bufio.NewWriterSize(e.Stdout, lineBuffer), warn: e.warnOnce(), spans: map[int32]span{},
	}
	if err := r.findEnds(e, c); err != nil {
		return err
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(r.group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(reset), kgo.FetchIsolationLevel(isolation),
		kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(), kgo.KeepRetryableFetchErrors(), kgo.KeepControlRecords(),
		kgo.OnPartitionsAssigned(r.assigned), kgo.OnPartitionsRevoked(r.revoked), kgo.OnPartitionsLost(r.lost),
	}
	if c.String("group-protocol") == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else { // so many that members of other makes find one that they know
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.StickyBalancer(), kgo.RangeBalancer(), kgo.RoundRobinBalancer()))
	}
	cl, err := e.connect(c, opts...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	err = r.run(c.Context, cl)
	if bye := r.leave(cl); err == nil {
		err = bye
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil // the reader of our output has seen enough
	case errors.Is(err, context.Canceled):
		return &Error{ExitInterrupted, "interrupted"}
	}
	return explain("consume "+topic+" in group "+r.group, brokersOf(c), err)
}

// groupReset is where partitions begin of which the group has committed nothing.
func groupReset(s string) (kgo.Offset, error) {
	pos, err := parseOffset(s)
	if err != nil {
		return kgo.Offset{}, err
	}
	switch {
	case pos.base == "start" && pos.value == 0:
		return kgo.NewOffset().AtStart(), nil
	case pos.base == "end" && pos.value == 0:
		return kgo.NewOffset().AtEnd(), nil
	case pos.base == "time":
		return kgo.NewOffset().AfterMilli(pos.value), nil
	}
	return kgo.Offset{}, usagef("-o %q does not go with -g: a group begins where it has committed, and else at start, end or @MILLISECONDS", s)
}

// findEnds notes where the topic ends now, if the reader is to stop there.
func (r *groupReader) findEnds(e *Env, c *cli.Context) error {
	if !c.Bool("exit") {
		return nil
	}
	cl, err := e.connect(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	spans, err := e.spans(c, cl, r.topic)
	if err != nil {
		return err
	}
	r.ends = map[int32]int64{}
	for p, s := range spans {
		r.ends[p] = s.end
	}
	return nil
}

// assigned notes the partitions that this member has now, and where the group was in them.
func (r *groupReader) assigned(ctx context.Context, cl *kgo.Client, got map[string][]int32) {
	var committed kadm.OffsetResponses
	if r.ends != nil {
		committed, _ = kadm.NewClient(cl).FetchOffsets(ctx, r.group) // without it the end is found by reading on
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined = true
	for _, p := range got[r.topic] {
		s := span{end: -1}
		if r.ends != nil {
			s.end = r.ends[p]
		}
		if o, ok := committed.Lookup(r.topic, p); ok && o.Err == nil {
			s.next = max(0, o.At)
		}
		r.spans[p] = s
	}
}

// revoked commits what was printed before the partitions go.
func (r *groupReader) revoked(ctx context.Context, cl *kgo.Client, gone map[string][]int32) {
	if err := cl.CommitMarkedOffsets(ctx); err != nil {
		r.warn(fmt.Errorf("commit: %w", err))
	}
	r.lost(ctx, cl, gone)
}

func (r *groupReader) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range gone[r.topic] {
		delete(r.spans, p)
	}
}

// finished tells whether all partitions that this member has are read to their end.
func (r *groupReader) finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if !s.finished() {
			return false
		}
	}
	return r.joined && r.ends != nil
}

func (r *groupReader) run(ctx context.Context, cl *kgo.Client) error {
	for !r.finished() {
		fs, err := r.poll(ctx, cl)
		if err != nil {
			return errors.Join(r.out.Flush(), err)
		}
		done, err := r.print(cl, fs)
		if err == nil {
			err = r.out.Flush()
		}
		cl.AllowRebalance()
		if err != nil || done {
			return err
		}
	}
	return nil
}

// poll returns what there is; an error is one that trying again does not cure.
func (r *groupReader) poll(ctx context.Context, cl *kgo.Client) (kgo.Fetches, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if r.ends != nil {
		wait, cancel = context.WithTimeout(ctx, groupPoll)
	}
	defer cancel()
	fs := cl.PollFetches(wait)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, fe := range fs.Errors() {
		switch {
		case errors.Is(fe.Err, context.DeadlineExceeded):
		case !kerr.IsRetriable(fe.Err) && !isNetwork(fe.Err):
			return nil, fe.Err
		default:
			r.warn(fe.Err)
		}
	}
	return fs, nil
}

// print writes the records of one poll, marks them to be committed, and tells
// whether as many were printed as was asked for.
func (r *groupReader) print(cl *kgo.Client, fs kgo.Fetches) (bool, error) {
	for it := fs.RecordIter(); !it.Done(); {
		rec := it.Next()
		if !rec.Attrs.IsControl() {
			r.buf = r.form.AppendRecord(r.buf[:0], rec)
			if _, err := r.out.Write(r.buf); err != nil {
				return false, err
			}
		}
		r.read(rec)
		cl.MarkCommitRecords(rec)
		if r.left > 0 && !rec.Attrs.IsControl() {
			if r.left--; r.left == 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

func (r *groupReader) read(rec *kgo.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.spans[rec.Partition]; ok {
		s.next = rec.Offset + 1
		r.spans[rec.Partition] = s
	}
}

// leave commits what was printed and gives the partitions up at once. The user
// may have interrupted us: that is no reason to lose the commit.
func (r *groupReader) leave(cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), groupFarewell)
	defer cancel()
	cl.AllowRebalance()
	return errors.Join(cl.CommitMarkedOffsets(ctx), cl.LeaveGroupContext(ctx))
}

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"
)

func (e *Env) consumeCommand() *cli.Command {
	return &cli.Command{
		Name: "consume", Usage: "print records", ArgsUsage: "TOPIC", Action: e.consume,
		Description: "Prints each record by a % format (%v value, %k key, %p partition, %o offset, %T timestamp,\n%h{…} headers, \\n newline) and follows the topic until Ctrl-C; with -e it stops at the end.",
		Flags: append(connectionFlags(),
			&cli.StringFlag{Name: "offset", Aliases: []string{"o"}, Value: "start", Usage: "where to begin: `start`, end, N, +N after the start, -N before the end, or @MILLISECONDS"},
			&cli.BoolFlag{Name: "exit", Aliases: []string{"e"}, Usage: "stop at the end that the topic had at the beginning"},
			&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: `%v\n`, Usage: "print by this `FORMAT`"},
			&cli.IntSliceFlag{Name: "partition", Aliases: []string{"p"}, Usage: "only partition `N`; may be repeated"},
			&cli.Int64Flag{Name: "num", Aliases: []string{"n"}, Usage: "stop after `N` records"},
			&cli.StringFlag{Name: "group", Aliases: []string{"g"}, Usage: "read as a member of this `GROUP`, which shares the partitions and keeps its offsets"},
			&cli.StringFlag{Name: "group-protocol", Value: "classic", Usage: "`classic`, or consumer to let the cluster assign the partitions"},
			&cli.BoolFlag{Name: "read-committed", Usage: "leave out records of open and aborted transactions"}),
	}
}

// span is the stretch of one partition that consume reads.
type span struct {
	next int64 // the offset of the next record to print
	end  int64 // exclusive; -1 to follow
}

func (s span) finished() bool { return s.end >= 0 && s.next >= s.end }

func (e *Env) consume(c *cli.Context) error {
	topic, err := oneTopic(c, "consume")
	if err != nil {
		return err
	}
	form, err := kgo.NewRecordFormatter(c.String("format"))
	if err != nil {
		return usagef("-f %q is not a record format: %v", c.String("format"), err)
	}
	if _, err := parseOffset(c.String("offset")); err != nil {
		return err
	}
	isolation := kgo.ReadUncommitted()
	if c.Bool("read-committed") {
		isolation = kgo.ReadCommitted()
	}
	if p := c.String("group-protocol"); p != "classic" && p != "consumer" {
		return usagef("unknown --group-protocol %q; use classic or consumer", p)
	}
	if c.String("group") != "" {
		return e.consumeGroup(c, topic, form, isolation)
	}
	cl, err := e.connect(c, kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(), kgo.KeepRetryableFetchErrors())
	if err != nil {
		return err
	}
	defer cl.Close()
	spans, err := e.spans(c, cl, topic)
	if err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	for p, s := range spans {
		if !s.finished() {
			from[p] = kgo.NewOffset().At(s.next)
		}
	}
	if len(from) == 0 {
		return nil
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	r := reader{cl: cl, topic: topic, spans: spans, left: c.Int64("num"), form: form, out: bufio.NewWriterSize(e.Stdout, lineBuffer), warn: e.warnOnce()}
	if c.Bool("exit") {
		r.bar = e.newBar(remaining(spans), "consumed", false)
	}
	err = r.run(c.Context)
	r.bar.done()
	if errors.Is(err, syscall.EPIPE) {
		return nil // the reader of our output has seen enough
	}
	if errors.Is(err, context.Canceled) {
		return &Error{ExitInterrupted, "interrupted"}
	}
	return explain("consume "+topic, brokersOf(c), err)
}

func remaining(spans map[int32]span) (n int64) {
	for _, s := range spans {
		n += max(0, s.end-s.next)
	}
	return n
}

// position is a parsed -o.
type position struct {
	base  string // "start", "end", "at" or "time"
	value int64
}

func parseOffset(s string) (position, error) {
	number := func(base, digits string, sign int64) (position, error) {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 {
			return position{}, usagef("-o %q is not an offset; use start, end, N, +N, -N or @MILLISECONDS", s)
		}
		return position{base, sign * n}, nil
	}
	switch {
	case s == "start" || s == "beginning" || s == "oldest":
		return position{"start", 0}, nil
	case s == "end" || s == "newest":
		return position{"end", 0}, nil
	case strings.HasPrefix(s, "+"):
		return number("start", s[1:], 1)
	case strings.HasPrefix(s, "-"):
		return number("end", s[1:], -1)
	case strings.HasPrefix(s, "@"):
		return number("time", s[1:], 1)
	}
	return number("at", s, 1)
}

// offsetsRetry bounds how long spans waits for partitions that have no leader
// at the moment.
const offsetsRetry = 100 * time.Millisecond

// spans asks for the start and end of each partition and places -o between them.
func (e *Env) spans(c *cli.Context, cl *kgo.Client, topic string) (map[int32]span, error) {
	pos, err := parseOffset(c.String("offset"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	adm := kadm.NewClient(cl)
	for {
		out, err := listSpans(ctx, adm, topic, pos, c.IntSlice("partition"), c.Bool("exit"))
		if err == nil || !kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownTopicOrPartition) {
			return out, explain("consume "+topic, brokersOf(c), err)
		}
		select {
		case <-ctx.Done():
			return nil, explain("consume "+topic, brokersOf(c), err)
		case <-time.After(offsetsRetry):
		}
	}
}

func listSpans(ctx context.Context, adm *kadm.Client, topic string, pos position, only []int, stop bool) (map[int32]span, error) {
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	var times kadm.ListedOffsets
	if pos.base == "time" {
		if times, err = adm.ListOffsetsAfterMilli(ctx, pos.value, topic); err == nil {
			err = times.Error()
		}
		if err != nil {
			return nil, err
		}
	}
	out := map[int32]span{}
	for p, start := range starts[topic] {
		end := ends[topic][p].Offset
		s := span{next: place(pos, start.Offset, end, times[topic][p].Offset), end: -1}
		if stop {
			s.end = end
		}
		out[p] = s
	}
	return pick(out, topic, only)
}

// place turns a position into an offset within [start, end]. A plain number is
// taken as it is, so that an offset out of range is reported by the broker's rule.
func place(pos position, start, end, byTime int64) int64 {
	switch pos.base {
	case "start":
		return min(start+pos.value, end)
	case "end":
		return max(end+pos.value, start)
	case "time":
		return byTime
	}
	return min(max(pos.value, start), end)
}

func pick(all map[int32]span, topic string, only []int) (map[int32]span, error) {
	if len(only) == 0 {
		return all, nil
	}
	out := map[int32]span{}
	for _, p := range only {
		s, ok := all[int32(p)]
		if !ok {
			return nil, &Error{ExitNotFound, fmt.Sprintf("topic %s has no partition %d; it has %d", topic, p, len(all))}
		}
		out[int32(p)] = s
	}
	return out, nil
}

// reader prints records until its spans are finished.
type reader struct {
	cl    *kgo.Client
	topic string
	spans map[int32]span
	left  int64 // records still to print; 0 for no limit
	form  *kgo.RecordFormatter
	out   *bufio.Writer
	buf   []byte
	warn  func(error)
	bar   *bar
}

func (r *reader) run(ctx context.Context) error {
	if r.bar == nil {
		r.bar = &bar{}
	}
	for {
		fs := r.cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return errors.Join(r.out.Flush(), err)
		}
		for _, fe := range fs.Errors() {
			if !kerr.IsRetriable(fe.Err) && !isNetwork(fe.Err) {
				return errors.Join(r.out.Flush(), fe.Err)
			}
			r.warn(fe.Err)
		}
		done, err := r.print(fs)
		if err != nil {
			return err
		}
		if err := r.out.Flush(); err != nil || done {
			return err
		}
	}
}

// isNetwork tells a broken connection, after which the client tries again.
func isNetwork(err error) bool {
	var ke *kerr.Error
	return !errors.As(err, &ke)
}

// print writes the records of one poll and tells whether all is printed.
func (r *reader) print(fs kgo.Fetches) (bool, error) {
	for it := fs.RecordIter(); !it.Done(); {
		rec := it.Next()
		s := r.spans[rec.Partition]
		if s.finished() || rec.Offset < s.next {
			continue
		}
		s.next = rec.Offset + 1
		r.spans[rec.Partition] = s
		if rec.Attrs.IsControl() || (s.end >= 0 && rec.Offset >= s.end) {
			continue
		}
		r.bar.add(1)
		r.buf = r.form.AppendRecord(r.buf[:0], rec)
		if _, err := r.out.Write(r.buf); err != nil {
			return false, err
		}
		if r.left > 0 {
			if r.left--; r.left == 0 {
				return true, nil
			}
		}
	}
	for _, s := range r.spans {
		if !s.finished() {
			return false, nil
		}
	}
	return true, nil
}

// warnOnce returns a function that mentions each distinct passing trouble once.
func (e *Env) warnOnce() func(error) {
	seen := map[string]bool{}
	return func(err error) {
		if text := err.Error(); !seen[text] {
			seen[text] = true
			fmt.Fprintf(e.Stderr, "weir: trying again after: %s\n", text)
		}
	}
}

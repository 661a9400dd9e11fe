package feed_test

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/wire/batch"
)

// parse reads a frame written as show prints it; numbers left out are 0, and a
// PROGRESS or MARK has one item.
func parse(t *testing.T, line string) feed.Frame {
	words := strings.Fields(strings.NewReplacer("(", " ", ")", " ").Replace(line))
	p := parsed{fields: make(map[string]int64)}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case ok && err == nil:
			p.fields[key] = n
		case w[0] == 'h' && len(w) > 1:
			p.ref.Handle = feed.Handle(number(t, w[1:]))
		case w[0] == 'a' && len(w) > 1 && w[1] >= '0' && w[1] <= '9':
			p.ref.Attempt = feed.Attempt(number(t, w[1:]))
		default:
			p.word = w
		}
	}
	return p.frame(t, words[0])
}

type parsed struct {
	ref    feed.Ref
	word   string
	fields map[string]int64
}

func number(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("number %q: %v", s, err)
	}
	return n
}

func (p parsed) offset(key string) batch.Offset { return batch.Offset(p.fields[key]) }

func (p parsed) frame(t *testing.T, kind string) feed.Frame {
	switch kind {
	case "FOLLOW":
		return feed.Follow{Ref: p.ref, TP: tp(p.word), LeaderEpoch: batch.Epoch(p.fields["epoch"]), Local: feed.Local{
			Written: p.offset("written"), Flushed: p.offset("flushed"), LastEpoch: batch.Epoch(p.fields["last"]), LogStart: p.offset("start"),
		}}
	case "FEED":
		return feed.Feed{Ref: p.ref, HW: p.offset("hw"), LogStart: p.offset("start"), Size: int(p.fields["size"])}
	case "PROGRESS":
		return feed.Progress{Items: []feed.ProgressItem{{
			Ref: p.ref, Written: p.offset("written"), Flushed: p.offset("flushed"), LogStart: p.offset("start"),
		}}}
	case "MARK":
		return feed.Mark{Items: []feed.MarkItem{{Ref: p.ref, HW: p.offset("hw"), LogStart: p.offset("start")}}}
	case "DIVERGED":
		return feed.Diverged{Ref: p.ref, Epoch: batch.Epoch(p.fields["epoch"]), End: p.offset("end")}
	case "REFUSED":
		for code := range maps.Keys(codeNames) {
			if codeNames[code] == p.word {
				return feed.Refused{Ref: p.ref, Code: code, LogStart: p.offset("start"), End: p.offset("end")}
			}
		}
	case "BAD":
		return feed.Bad{Ref: p.ref, Offset: p.offset("offset")}
	case "UNFOLLOW":
		return feed.Unfollow{Ref: p.ref}
	case "PING":
		return feed.Ping{Number: uint64(number(t, p.word))}
	case "PONG":
		return feed.Pong{Number: uint64(number(t, p.word))}
	}
	t.Fatalf("unknown frame %s %+v", kind, p)
	return nil
}

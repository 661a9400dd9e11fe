package broker

import (
	"time"

	"github.com/weirmq/weir/broker/feed"
)

// trouble is a row of failures of one replica to take what its leader sends. It is told
// twice, when it begins and when it is over: a disk that is full stays so for a while, and
// every try would be a line.
type trouble struct {
	kind  feed.ActionKind // what failed first
	since time.Time
	tries int
}

// failed notes that p could not do what the leader's frame asks. The core tries again, after
// a longer pause each time.
func (f *follower) failed(p *Partition, kind feed.ActionKind, err error) {
	f.env.metrics.feedFailures.Inc()
	f.mu.Lock()
	t, again := f.troubles[p]
	if !again {
		t = trouble{kind: kind, since: f.env.now()}
	}
	t.tries++
	if _, wanted := f.wanted[p]; wanted {
		f.troubles[p] = t
	}
	f.mu.Unlock()
	if !again {
		f.log.Error("cannot take what the leader sent; trying again, less and less often", "topic", p.log.Topic(), "partition", p.tp.Partition, "error", err)
	}
	p.trouble(err)
}

// succeeded tells the core that p did what was asked, and ends its trouble if that was to
// fail at this; an append shows that all is well.
func (f *follower) succeeded(p *Partition, kind feed.ActionKind, told func()) {
	f.mu.Lock()
	told()
	t, over := f.troubles[p]
	over = over && (kind == t.kind || kind == feed.ActionAppend)
	if over {
		delete(f.troubles, p)
	}
	f.mu.Unlock()
	if over {
		f.log.Warn("took what the leader sent, after trouble", "topic", p.log.Topic(), "partition", p.tp.Partition,
			"tries", t.tries, "lasted", f.env.now().Sub(t.since).Round(time.Millisecond).String())
	}
}

package broker

import (
	"errors"
	"time"

	"github.com/weirmq/weir/fsm"
)

// expiredOffsets bounds the offsets that one change gives up.
const expiredOffsets = 8192

// expireOffsets gives up what is too old in the slots that this node owns, and
// drops cores that hold nothing. Nothing goes of a topic that a member of a live
// group subscribes to, and nothing of a live group whose subscriptions are not known.
// leapt is how far the clock ran ahead since the last time: by a clock that leapt, what was
// committed today would seem weeks old.
func (g *groups) expireOffsets(now time.Time, leapt time.Duration) {
	if !g.fresh() {
		return
	}
	if leapt > clockLeap {
		g.log.Warn("the clock leapt forward; no committed offsets are given up this time", "by", leapt)
		return
	}
	g.eachTenure(func(t *tenure, im *fsm.Image) { t.sweep(im, now) })
}

func (t *tenure) sweep(im *fsm.Image, now time.Time) {
	for row := range im.Groups(t.shard.slot) {
		t.sweepGroup(im, row, now)
	}
	for id, lg := range t.live {
		if lg.core.Idle() {
			delete(t.live, id)
		}
	}
}

// sweepGroup judges the offsets of one group as Kafka does. A group that is left
// with neither members nor offsets goes too.
func (t *tenure) sweepGroup(im *fsm.Image, row *fsm.Group, now time.Time) {
	judge := t.judge(row, now)
	if judge == nil {
		return
	}
	var old []fsm.ExpiredOffset
	kept := 0
	for tp, c := range im.CommittedOf(row.ID) {
		if topic, ok := im.Topic(tp.Topic); ok && !judge(topic.Name, c) {
			kept++
			continue
		}
		old = append(old, fsm.ExpiredOffset{TP: tp, CommitMs: c.CommitMs})
	}
	if len(old) == 0 && (kept > 0 || len(row.Members) > 0 || t.busy(row.ID)) {
		return
	}
	for {
		n := min(len(old), expiredOffsets)
		t.proposeExpiry(row, old[:n:n])
		if old = old[n:]; len(old) == 0 {
			return
		}
	}
}

// busy tells whether a group without members in its row has a core that does something.
func (t *tenure) busy(id string) bool {
	lg := t.live[id]
	return lg != nil && !lg.core.Idle()
}

// judge returns what tells whether an offset is too old, nil when none of the
// group is. Those of a group without members age from when it lost the last one,
// those of one that never had any, and those of topics that a group has ceased
// to subscribe to, from their commit.
func (t *tenure) judge(row *fsm.Group, now time.Time) func(topic string, c fsm.Committed) bool {
	retention := t.shard.groups.config.OffsetsRetention.Milliseconds()
	ms := now.UnixMilli()
	since := func(c fsm.Committed) int64 { return c.CommitMs }
	subscribed := func(string) bool { return false }
	lg := t.live[row.ID]
	switch {
	case len(row.Members) > 0:
		if lg == nil || !lg.core.KnowsSubscriptions() {
			return nil
		}
		subscribed = lg.core.Subscribed
	case lg != nil && !lg.core.Idle():
		return nil // somebody is joining
	case row.Kind == fsm.ClassicGroup && row.ProtocolType != "":
		since = func(c fsm.Committed) int64 { return max(row.EmptySince, 0) }
	}
	return func(topic string, c fsm.Committed) bool {
		if subscribed(topic) {
			return false
		}
		if c.ExpireMs >= 0 {
			return ms >= c.ExpireMs
		}
		return ms-since(c) >= retention
	}
}

func (t *tenure) proposeExpiry(row *fsm.Group, old []fsm.ExpiredOffset) {
	g := t.shard.groups
	t.propose(&slotChange{
		what: fsm.ExpireOffsets{Group: row.ID, Epoch: row.Epoch, Partitions: old},
		size: len(row.ID) + 24*len(old),
		settle: func(err error) {
			switch {
			case err == nil && len(old) > 0:
				g.metrics.expired.Add(float64(len(old)))
				g.log.Info("committed offsets were given up because they are too old", "group", row.ID, "offsets", len(old))
			case err != nil && !errors.Is(err, fsm.StaleGroup) && !errors.Is(err, fsm.UnknownGroup) && !errors.Is(err, errNotCoordinator):
				g.log.Error("the cluster refused to give offsets up", "group", row.ID, "error", err)
			}
		},
	})
}

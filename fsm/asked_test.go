package fsm_test

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// asked holds an election of one partition as an operator asks for it, by the
// rule that the step names: preferred or unclean, the latter with the log ends given
// as for recover.
func (s *script) asked() string {
	tp := s.tp(s.text("tp", ""))
	p, ok := s.im.Partition(tp)
	if !ok {
		s.t.Fatalf("%s: no partition %v", s.d.Pos, tp)
	}
	c, choice := elect.Preferred(s.im, tp, p)
	if s.d.Cmd == "unclean" {
		c, choice = elect.Unclean(s.im, tp, p, s.logEnds(strings.Join(s.words("ends"), ",")))
	}
	switch choice {
	case elect.NotNeeded:
		return "not needed\n"
	case elect.NobodyFit:
		return "nobody fit\n"
	}
	return s.propose(fsm.ChangeLeaders{Items: []fsm.LeaderChange{c}})
}

// checkAsked checks that whatever leader the rules for asked elections choose is accepted,
// and that a preferred one costs no member of the ISR its seat.
func checkAsked(t *rapid.T, im *fsm.Image) {
	for topic := range im.Topics() {
		for i, p := range im.Partitions(topic.ID) {
			if i > 3 {
				break
			}
			tp := fsm.TopicPartition{Topic: topic.ID, Partition: i}
			for _, name := range []string{"preferred", "unclean"} {
				c, choice := elect.Preferred(im, tp, p)
				if name == "unclean" {
					c, choice = elect.Unclean(im, tp, p, drawEnds(t, p))
				}
				if choice != elect.Elected {
					continue
				}
				next, r := fsm.Apply(im, im.Index()+1, fsm.ChangeLeaders{Items: []fsm.LeaderChange{c}})
				now, _ := next.Partition(tp)
				if len(r.Skipped) > 0 || now.Leader != c.Leader || !im.Eligible(c.Leader) {
					t.Fatalf("%s election %+v of %+v: %+v, then %+v", name, c, p, r, now)
				}
				if name == "preferred" && (now.Leader != p.Replicas[0] || fmt.Sprint(now.ISR) != fmt.Sprint(eligible(im, p.ISR)) || now.Recovering != p.Recovering) {
					t.Fatalf("preferred election turns %+v into %+v", p, now)
				}
			}
		}
	}
}

// drawEnds draws the ends of some replicas' logs.
func drawEnds(t *rapid.T, p fsm.Partition) []elect.LogEnd {
	var ends []elect.LogEnd
	for _, id := range p.Replicas {
		if rapid.IntRange(0, 3).Draw(t, "answer") > 0 {
			ends = append(ends, elect.LogEnd{Broker: id, Epoch: batch.Epoch(rapid.IntRange(-1, 2).Draw(t, "last epoch")),
				End: batch.Offset(rapid.IntRange(0, 3).Draw(t, "end")), Damaged: rapid.Bool().Draw(t, "damage")})
		}
	}
	return ends
}

func eligible(im *fsm.Image, ids []fsm.BrokerID) []fsm.BrokerID {
	var out []fsm.BrokerID
	for _, id := range ids {
		if im.Eligible(id) {
			out = append(out, id)
		}
	}
	return out
}

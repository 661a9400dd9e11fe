package elect

import (
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// Recovery finds leaders for partitions of which nobody surely holds all records.
//
// Problem: after a power cut of the whole cluster every replica may have lost the
// end of its log, and the Image can not tell whose is the best. It knows the last
// members: among them are all that may hold the latest committed record, as long as
// their disks are what they were.
//
// Invariants:
//   - Nobody is chosen before all of the last members are back, unless the topic allows
//     that, and they and all other replicas that live have answered for their present
//     incarnation. A log does not change between the answer and the election: its
//     broker had seen that there is no leader (Question.Index), and whoever restarts
//     is another incarnation.
//   - A damaged log is barred. Where all are damaged the partition waits for an
//     operator, who repairs one or gives records up by an explicit election.
//   - One question is outstanding per broker, of at most QuestionSize partitions.
//
// Steps: Update takes the undecided partitions of an Image, Questions says whom to
// ask what, Answered and Failed take what came of it, Decide makes the changes of
// leaders for those that everybody has answered for.
//
// Rejected: to ask about all partitions at once, which after a power cut of a
// large cluster is a message of megabytes that holds up everything behind it; and
// rounds of all brokers, in which a slow one holds up the partitions of the others.
//
// It is the soft state of one controller reign and belongs to its goroutine.
type Recovery struct {
	pause     time.Duration
	undecided map[fsm.TopicPartition]*undecided
	index     uint64 // of the Image that Update took last
	questions uint64 // how many there have been
	brokers   map[fsm.BrokerID]*inquiry
	complete  []fsm.TopicPartition // everybody has answered since the last Decide
	damaged   []fsm.TopicPartition // found to be all damaged since the last Damaged
}

// undecided is a partition in the state that its answers were given for.
type undecided struct {
	partitionEpoch fsm.PartitionEpoch
	leaderEpoch    batch.Epoch
	answers        map[fsm.BrokerID]Answer
	damaged        bool // it was reported that all logs are
}

// inquiry is what one incarnation of a broker is to be asked.
type inquiry struct {
	epoch  fsm.BrokerEpoch
	todo   []fsm.TopicPartition
	wanted bool      // by the last Update: it is asked again for what it did not answer
	asked  uint64    // the number of the question that is outstanding, 0 for none
	notYet time.Time // no question before that
}

// Question asks one incarnation of a broker where its logs end.
type Question struct {
	Broker fsm.BrokerID
	Epoch  fsm.BrokerEpoch
	// Index is that of the Image that the broker must have acted on before it
	// answers: it knows then that these partitions have no leader.
	Index      uint64
	Partitions []fsm.TopicPartition
	number     uint64 // no two are equal
}

// Answer says where one log ends.
type Answer struct {
	TP  fsm.TopicPartition
	End LogEnd
	// Epoch is that of the incarnation that answered.
	Epoch fsm.BrokerEpoch
}

// Recovered is a last-members election with what it was decided on.
type Recovered struct {
	Change fsm.LeaderChange
	Ends   []LogEnd
}

// QuestionSize bounds the partitions of one question: 40 KB, and a few
// milliseconds of work for the broker.
const QuestionSize = 2048

// NewRecovery returns an empty Recovery, which leaves a broker that did not answer
// alone for a while.
func NewRecovery(pause time.Duration) *Recovery {
	return &Recovery{pause: pause, undecided: map[fsm.TopicPartition]*undecided{}, brokers: map[fsm.BrokerID]*inquiry{}}
}

// Update takes the partitions that are undecided now. Answers are kept where
// neither the partition nor the broker has changed since the last call. It is to be
// called when brokers, partitions without a leader or configs have changed.
func (r *Recovery) Update(im *fsm.Image) {
	old := r.undecided
	r.index, r.undecided, r.complete = im.Index(), map[fsm.TopicPartition]*undecided{}, nil
	for _, q := range r.brokers {
		q.todo = nil
	}
	for _, tp := range Undecided(im) {
		p, _ := im.Partition(tp)
		u := old[tp]
		if u == nil || u.partitionEpoch != p.PartitionEpoch || u.leaderEpoch != p.LeaderEpoch {
			u = &undecided{partitionEpoch: p.PartitionEpoch, leaderEpoch: p.LeaderEpoch, answers: map[fsm.BrokerID]Answer{}}
		}
		r.undecided[tp] = u
		r.want(im, tp, p, u)
	}
	for id, q := range r.brokers {
		b, _ := im.Broker(id)
		q.wanted = len(q.todo) > 0
		if b.Epoch != q.epoch || !q.wanted && q.asked == 0 {
			delete(r.brokers, id)
		}
	}
}

// want notes which answers are missing for a partition.
func (r *Recovery) want(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition, u *undecided) {
	missing := 0
	asked, _ := Asked(im, tp, p)
	for _, id := range asked {
		b, _ := im.Broker(id)
		if a, ok := u.answers[id]; ok && a.Epoch == b.Epoch {
			continue
		}
		delete(u.answers, id)
		missing++
		q := r.brokers[id]
		if q == nil {
			q = &inquiry{}
			r.brokers[id] = q
		}
		if q.epoch != b.Epoch {
			*q = inquiry{epoch: b.Epoch} // what its predecessor was asked is no longer of interest
		}
		q.todo = append(q.todo, tp)
	}
	if missing == 0 && !u.damaged {
		r.complete = append(r.complete, tp)
	}
}

// Questions returns what is to be asked now, in order of broker id; each is
// outstanding until Answered or Failed.
func (r *Recovery) Questions(now time.Time) []Question {
	var out []Question
	for id, q := range r.brokers {
		if q.asked != 0 || q.notYet.After(now) {
			continue
		}
		question := Question{Broker: id, Epoch: q.epoch, Index: r.index}
		for len(q.todo) > 0 && len(question.Partitions) < QuestionSize {
			tp := q.todo[0]
			q.todo = q.todo[1:]
			if u := r.undecided[tp]; u != nil && u.answers[id].Epoch != q.epoch {
				question.Partitions = append(question.Partitions, tp)
			}
		}
		if len(question.Partitions) > 0 {
			r.questions++
			question.number, q.asked = r.questions, r.questions
			out = append(out, question)
		}
	}
	slices.SortFunc(out, func(a, b Question) int { return int(a.Broker - b.Broker) })
	return out
}

// Answered takes the answers to a question. Those of another incarnation, and for
// partitions that were not asked about, are dropped; what is missing then is asked
// again after a while.
func (r *Recovery) Answered(q Question, answers []Answer, now time.Time) {
	in := r.brokers[q.Broker]
	if in == nil || in.asked != q.number {
		return // it is no longer of interest
	}
	in.asked = 0
	given := make(map[fsm.TopicPartition]Answer, len(answers))
	for _, a := range answers {
		if a.Epoch == q.Epoch && a.End.Broker == q.Broker {
			given[a.TP] = a
		}
	}
	for _, tp := range q.Partitions {
		u := r.undecided[tp]
		if u == nil {
			continue
		}
		a, ok := given[tp]
		if !ok && !in.wanted {
			continue // it is gone, or fenced
		}
		if !ok {
			in.todo = append(in.todo, tp)
			in.notYet = now.Add(r.pause)
			continue
		}
		u.answers[q.Broker] = a
		r.complete = append(r.complete, tp)
	}
}

// Failed says that a question was not answered: it is asked again after a while.
func (r *Recovery) Failed(q Question, now time.Time) { r.Answered(q, nil, now) }

// Decide elects leaders where all that are to be asked have answered. The changes
// are to be committed before anything else is, at this Image: an incarnation that
// registers in between would lend its name to a log that it may no longer have.
func (r *Recovery) Decide(im *fsm.Image) []Recovered {
	var out []Recovered
	for _, tp := range r.complete {
		u := r.undecided[tp]
		p, ok := im.Partition(tp)
		if u == nil || !ok || p.PartitionEpoch != u.partitionEpoch || p.LeaderEpoch != u.leaderEpoch {
			continue
		}
		ends, all := u.ends(im, tp, p)
		if !all {
			continue
		}
		if c, ok := Recover(im, tp, p, ends); ok {
			out = append(out, Recovered{c, ends})
			delete(r.undecided, tp)
		} else if !u.damaged {
			u.damaged = true
			r.damaged = append(r.damaged, tp)
		}
	}
	r.complete = nil
	return out
}

// ends are the answers of all that are to be asked, if each has answered for its
// present incarnation.
func (u *undecided) ends(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition) ([]LogEnd, bool) {
	var ends []LogEnd
	asked, ready := Asked(im, tp, p)
	if !ready {
		return nil, false
	}
	for _, id := range asked {
		b, _ := im.Broker(id)
		a, ok := u.answers[id]
		if !ok || a.Epoch != b.Epoch {
			return nil, false
		}
		ends = append(ends, a.End)
	}
	return ends, true
}

// Damaged returns the partitions that were found to wait for an operator, since
// every copy that could lead is damaged. Each is named once.
func (r *Recovery) Damaged() []fsm.TopicPartition {
	out := r.damaged
	r.damaged = nil
	return out
}

// WakeAt is when to call Questions next, if nothing happens before; false when
// there is nothing to ask.
func (r *Recovery) WakeAt() (time.Time, bool) {
	var at time.Time
	found := false
	for _, q := range r.brokers {
		if q.asked == 0 && len(q.todo) > 0 && (!found || q.notYet.Before(at)) {
			at, found = q.notYet, true
		}
	}
	return at, found
}

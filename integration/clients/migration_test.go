package clients

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestJavaMigration exchanges the members of a group one by one for ones of the other
// group protocol, and back, while records come in. Each record is read, none twice,
// which would be the mark of a partition that two members had; and the group ends with
// everything committed.
func TestJavaMigration(t *testing.T) {
	for name, strategy := range map[string]string{"eager": "RangeAssignor", "cooperative": "CooperativeStickyAssignor"} {
		t.Run(name, func(t *testing.T) {
			java := findJava(t)
			m := &migration{journey: newJourney(t, java.verifiable(t, "CLASSIC"))}
			m.flock = m.newFlock("migration")
			classic := append(m.group(m.bootstrap(), journeyTopic, journeyGroup), "--assignment-strategy", "org.apache.kafka.clients.consumer."+strategy)
			consumer := java.verifiable(t, "CONSUMER").group(m.bootstrap(), journeyTopic, journeyGroup)
			stop := m.load()
			m.join(classic)
			m.join(classic)
			m.await("classic", 2)
			for i, argv := range [][]string{consumer, consumer, classic, classic} {
				m.retire(i)
				m.join(argv)
				m.await([]string{"consumer", "consumer", "consumer", "classic"}[i], 2)
			}
			m.settle(4, 5)
			stop()
			ends := m.ends()
			m.until("everything read", func() bool { return m.allRead(nil, ends) })
			m.retire(4)
			m.retire(5)
			m.wantCommitted(ends)
			m.wantOneHolder()
			m.logf("%d records read", total(ends))
		})
	}
}

// migration is a journey of one flock whose members change.
type migration struct {
	*journey
	*flock
}

// load produces until it is stopped.
func (m *migration) load() (stop func()) {
	ctx, cancel := context.WithCancel(m.ctx)
	done := make(chan struct{})
	go func() { // ends with ctx; stop waits
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			r := &kgo.Record{Topic: journeyTopic, Value: []byte(value(n)), Key: fmt.Append(nil, n)}
			if err := m.cl.ProduceSync(m.ctx, r).FirstErr(); err != nil {
				m.journey.t.Errorf("produce: %v", err)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (m *migration) join(argv []string) { m.add(argv) }

// await takes what members print until the group is of that type, and stable with that
// many of them.
func (m *migration) await(kind string, members int) {
	m.journey.t.Helper()
	m.until(fmt.Sprintf("%d members in a %s group", members, kind), func() bool {
		listed, err := m.adm.ListGroupsByType(m.ctx, []string{kind})
		if err != nil || !slices.Contains(listed.Groups(), journeyGroup) {
			return false
		}
		m.consumer = kind == "consumer"
		return m.stable(members)
	})
	m.logf("the group is %s with %d members", kind, members)
}

// settle waits until members that are in a stable group have read more. While it is in
// a rebalance a cooperative client cannot commit, and does not commit later what it read.
func (m *migration) settle(members ...int) {
	m.journey.t.Helper()
	before := maps.Clone(m.byMember)
	m.until("more read by each member", func() bool {
		return !slices.ContainsFunc(members, func(i int) bool { return m.byMember[i] < before[i]+2000 })
	})
}

// retire ends one member in order.
func (m *migration) retire(member int) {
	m.journey.t.Helper()
	if err := m.all[member].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		m.journey.t.Fatal(err)
	}
	for {
		select {
		case e := <-m.in:
			if e.Step != "ended" {
				m.take(e)
				continue
			}
			if err := m.all[e.member].wait(m.stopCodes...); err != nil || e.member != member {
				m.journey.t.Fatalf("member %d ended with %v\n%s", e.member, err, m.all[e.member].tail())
			}
			m.logf("member %d left after %d records", member, m.byMember[member])
			return
		case <-m.ctx.Done():
			m.journey.t.Fatalf("member %d did not end with SIGTERM", member)
		}
	}
}

// wantOneHolder fails when a partition was with two members at once, by what they say
// themselves. They have one clock, which may show a giving up and a taking over alike.
func (m *migration) wantOneHolder() {
	m.journey.t.Helper()
	moves := slices.Clone(m.moves)
	slices.SortStableFunc(moves, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), -strings.Compare(a.Step, b.Step)) // what is revoked first
	})
	holders, taken := map[int32]int{}, 0
	for _, e := range moves {
		for _, p := range e.partitions {
			holder, held := holders[p]
			switch {
			case e.Step == "assigned" && held && holder != e.member:
				m.journey.t.Errorf("partition %d was given to member %d while member %d had it", p, e.member, holder)
			case e.Step == "assigned":
				holders[p] = e.member
				taken++
			case holder == e.member:
				delete(holders, p)
			}
		}
	}
	again := 0
	for _, seen := range m.seen {
		for _, times := range seen {
			again += times - 1
		}
	}
	m.logf("partitions were given out %d times, %d records were read again, commits that failed: %v", taken, again, m.failed)
}

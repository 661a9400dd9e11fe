package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestIdleGroups makes many groups of each idle kind and reports what each costs a node in
// heap and in resident memory: one that has only committed, one whose member has left, and
// one with a member that lives. The members share a few connections, whose memory is not
// the groups'.
func TestIdleGroups(t *testing.T) {
	groups := scaleOf(t, "WEIR_GROUPS", 30)
	t.Setenv("GOGC", "100") // what groups hold is asked for, not what a busy node's heap may grow by
	r := newGroupRig(t, 15*time.Minute, 1, "group.initial.rebalance.delay.ms=0", "group.max.session.timeout.ms=3600000")
	id := r.topicID()
	kinds := []struct {
		name string
		make func(*wireConn, string) error
	}{
		{"only committed", func(w *wireConn, group string) error {
			return commitAs(w, wirePatience, groupCommit(group, id, "", -1))
		}},
		{"member has left", func(w *wireConn, group string) error { return visit(w, group, id, true) }},
		{"one live member", func(w *wireConn, group string) error { return visit(w, group, id, false) }},
	}
	// The first groups also pay for what is made once.
	r.makeGroups("warm", max(groups/10, 3), kinds[2].make)
	t.Logf("%-16s %8s %16s %16s", "kind", "groups", "heap KB each", "resident KB each")
	for _, k := range kinds {
		heap, resident := r.memory()
		r.makeGroups(k.name, groups, k.make)
		heapAfter, residentAfter := r.memory()
		each := func(a, b int64) float64 { return float64(b-a) / float64(len(r.Nodes)) / float64(groups) / 1024 }
		t.Logf("%-16s %8d %16.2f %16.2f", k.name, groups, each(heap, heapAfter), each(resident, residentAfter))
	}
	r.countGroups(3*groups + max(groups/10, 3))
}

// countGroups wants as many groups listed by their coordinators.
func (r *groupRig) countGroups(want int) {
	r.t.Helper()
	got := 0
	for _, n := range r.Nodes {
		w, err := dialWire(n.Client)
		if err != nil {
			r.t.Fatal(err)
		}
		defer w.Close()
		req := kmsg.NewPtrListGroupsRequest()
		req.Version = 4
		resp, err := w.ask(req)
		if err != nil {
			r.t.Fatal(err)
		}
		got += len(resp.(*kmsg.ListGroupsResponse).Groups)
	}
	if got != want {
		r.t.Errorf("the nodes list %d groups, want %d", got, want)
	}
}

// makeGroups makes n groups, several at a time.
func (r *groupRig) makeGroups(prefix string, n int, do func(*wireConn, string) error) {
	r.t.Helper()
	const workers = 8
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			conns := map[int32]*wireConn{}
			defer func() {
				for _, w := range conns {
					_ = w.Close()
				}
			}()
			for i := worker; i < n; i += workers {
				group := fmt.Sprintf("%s-%d", strings.ReplaceAll(prefix, " ", "-"), i)
				if err := poll(r.ctx, "make group "+group, func() error { return r.makeGroup(conns, group, do) }); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (r *groupRig) makeGroup(conns map[int32]*wireConn, group string, do func(*wireConn, string) error) error {
	n, err := r.coordinatorBy(conns, group)
	if err != nil {
		return err
	}
	w, err := r.connTo(conns, n)
	if err != nil {
		return err
	}
	if err := do(w, group); err != nil {
		_ = w.Close() // its answer may still come
		delete(conns, n.ID)
		return err
	}
	return nil
}

// coordinatorBy asks the first node over a connection that is kept.
func (r *groupRig) coordinatorBy(conns map[int32]*wireConn, group string) (*Node, error) {
	w, err := r.connTo(conns, r.Nodes[0])
	if err != nil {
		return nil, err
	}
	id, err := coordinatorOf(w, group)
	if err != nil {
		return nil, err
	}
	return r.Node(id), nil
}

func (r *groupRig) connTo(conns map[int32]*wireConn, n *Node) (*wireConn, error) {
	if w := conns[n.ID]; w != nil {
		return w, nil
	}
	w, err := dialWire(n.Client)
	if err == nil {
		conns[n.ID] = w
	}
	return w, err
}

// visit joins a group with one member, syncs and commits; the member leaves or stays silent
// with a long session.
func visit(w *wireConn, group string, id [16]byte, leaves bool) error {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, group, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 3_600_000, 60_000
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{groupTopic}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", meta.AppendTo(nil)
	join.Protocols = append(join.Protocols, protocol)
	resp, err := w.ask(join)
	if err != nil {
		return err
	}
	joined := resp.(*kmsg.JoinGroupResponse)
	if err := kerr.ErrorForCode(joined.ErrorCode); err != nil {
		return err
	}
	topic := kmsg.NewConsumerMemberAssignmentTopic()
	topic.Topic, topic.Partitions = groupTopic, []int32{0}
	assignment := kmsg.NewConsumerMemberAssignment()
	assignment.Topics = append(assignment.Topics, topic)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, group, joined.MemberID, joined.Generation
	row := kmsg.NewSyncGroupRequestGroupAssignment()
	row.MemberID, row.MemberAssignment = joined.MemberID, assignment.AppendTo(nil)
	sync.GroupAssignment = append(sync.GroupAssignment, row)
	if resp, err = w.ask(sync); err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.SyncGroupResponse).ErrorCode); err != nil {
		return err
	}
	if err := commitAs(w, wirePatience, groupCommit(group, id, joined.MemberID, joined.Generation)); err != nil || !leaves {
		return err
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group, leave.MemberID = 1, group, joined.MemberID
	if resp, err = w.ask(leave); err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.LeaveGroupResponse).ErrorCode)
}

// memory is the heap that all nodes have in use, just after a collection, and what of them
// is resident.
func (r *groupRig) memory() (heap, resident int64) {
	r.t.Helper()
	for _, n := range r.Nodes {
		h, err := r.heapAfterCollection(n)
		if err != nil {
			r.t.Fatal(err)
		}
		size, err := residentOf(n.PID())
		if err != nil {
			r.t.Fatal(err)
		}
		heap, resident = heap+h, resident+size
	}
	return heap, resident
}

// heapAfterCollection makes a node allocate, by asking for its metrics, until it has collected
// its garbage twice, and returns its heap just after.
func (r *groupRig) heapAfterCollection(n *Node) (int64, error) {
	count := func() (collections, heap float64, err error) {
		m, err := metricsOf(n)
		return m["go_gc_duration_seconds_count"], m["go_memstats_heap_alloc_bytes"], err
	}
	first, _, err := count()
	if err != nil {
		return 0, err
	}
	for r.ctx.Err() == nil {
		now, heap, err := count()
		if err != nil {
			return 0, err
		}
		if now >= first+2 { // what was garbage at first is gone
			return int64(heap), nil
		}
	}
	return 0, r.ctx.Err()
}

// metricsOf reads the metrics of a node that have no labels.
func metricsOf(n *Node) (map[string]float64, error) {
	resp, err := http.Get("http://" + n.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[name] = v
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the node shows no metrics")
	}
	return out, nil
}

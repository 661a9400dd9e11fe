package hostile

import (
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codes of groups.
const (
	bigMetadata   = 12
	oldGeneration = 22
	noProtocol    = 23
	unknownMember = 25
	badSession    = 26
	idRequired    = 79
)

func groupInputs() []input {
	return []input{
		{number: 34, name: "commits of 10 M partitions, of others' groups, of other generations", memory: 128 << 20, run: hostileCommits},
		{number: 34, name: "commits of 34 k groups that nobody knows", memory: 128 << 20, run: unknownGroups},
		{number: 35, name: "joins with 100 k protocols, sessions of 0 and 2^31-1", run: hostileJoins},
		{number: 35, name: "assignments of 100 MiB, from whom they are not wanted", run: hostileSyncs},
		{number: 35, name: "joins that ask for an id and never come back, each in a group of its own", memory: 128 << 20, run: idsNeverUsed},
		{number: 35, name: "50 k joins of one group that never sync", memory: 128 << 20, run: joinsNeverSynced},
	}
}

// joinRequest asks to be a member, as a new one when member is empty.
func joinRequest(group, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID = 5, group, member
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = 30_000, 60_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	r.Protocols = append(r.Protocols, p)
	return r
}

// join makes a member, and returns its id and generation.
func (a *attack) join(c *conn, group string) (member string, generation int32) {
	a.Helper()
	r := joinRequest(group, "")
	r.Version = 3
	resp := c.ask(r).(*kmsg.JoinGroupResponse)
	a.code("join "+group, resp.ErrorCode, ok)
	return resp.MemberID, resp.Generation
}

// leave takes a member out.
func (a *attack) leave(c *conn, group, member string) {
	a.Helper()
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group, r.MemberID = 2, group, member
	a.code("leave "+group, c.ask(r).(*kmsg.LeaveGroupResponse).ErrorCode, ok)
}

// commitRequest commits an offset of the prey for a group.
func commitRequest(group, member string, generation int32, metadata string) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 8, group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = prey
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.LeaderEpoch, p.Metadata = 1, -1, &metadata
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func (a *attack) commit(c *conn, r *kmsg.OffsetCommitRequest) int16 {
	a.Helper()
	return a.lasting(func() int16 { return c.ask(r).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode })
}

func hostileCommits(a *attack) string {
	many := commitRequest("many", "", -1, "")
	many.Topics[0].Partitions = make([]kmsg.OffsetCommitRequestTopicPartition, a.size(1_000_000, 10_000_000))
	c := a.dial()
	c.raw(c.encode(many, "attacker"))
	c.closed()
	c = a.dial()
	most := commitRequest("most", "", -1, "")
	most.Topics[0].Partitions = make([]kmsg.OffsetCommitRequestTopicPartition, a.size(20_000, 200_000))
	a.code("as many as fit a request", a.commit(c, most), ok)

	a.code("4097 bytes of metadata", a.commit(c, commitRequest("mine", "", -1, strings.Repeat("m", 4097))), bigMetadata)
	a.code("32767 bytes of metadata", a.commit(c, commitRequest("mine", "", -1, strings.Repeat("m", math.MaxInt16))), bigMetadata)
	d := a.dial()
	d.raw(d.encode(commitRequest("mine", "", -1, strings.Repeat("m", 1<<20)), "attacker"))
	d.closed()

	a.code("another's group, from outside", a.commit(c, commitRequest(witnessTopic, "", -1, "")), unknownMember)
	a.code("another's group, as a member", a.commit(c, commitRequest(witnessTopic, "intruder", 1, "")), unknownMember)
	member, generation := a.join(c, "mine")
	a.code("the generation before", a.commit(c, commitRequest("mine", member, generation-1, "")), oldGeneration)
	a.code("the generation after", a.commit(c, commitRequest("mine", member, generation+1, "")), oldGeneration)
	a.code("generation -2^31", a.commit(c, commitRequest("mine", member, math.MinInt32, "")), oldGeneration)
	a.leave(c, "mine", member)
	return "closed above 4 MiB; 12, 22, 25"
}

// unknownGroups commits for one group after the other that was never heard of.
func unknownGroups(a *attack) string {
	const together = 50
	conns := make([]*conn, 8)
	for i := range conns {
		conns[i] = a.dial()
	}
	n := a.flood(len(conns), a.size(2_000, 34_000)/together, func(worker, n int) error {
		return conns[worker].many(together, func(i int) kmsg.Request {
			return commitRequest(fmt.Sprintf("unknown-%d-%d-%d", worker, n, i), "", -1, "")
		}, nil)
	})
	return fmt.Sprintf("stored, %d of them", n*together)
}

// many sends n requests in one go and takes their answers; check, if not nil, is
// asked about each.
func (c *conn) many(n int, request func(i int) kmsg.Request, check func(kmsg.Response) error) error {
	return c.manyAs("attacker", n, request, check)
}

func (c *conn) manyAs(client string, n int, request func(i int) kmsg.Request, check func(kmsg.Response) error) error {
	var out []byte
	all := make([]kmsg.Request, n)
	for i := range all {
		all[i] = request(i)
		out = append(out, c.encode(all[i], client)...)
	}
	if err := c.send(out); err != nil {
		return err
	}
	for i, r := range all {
		resp, err := c.receive(r, c.corr-int32(n-1-i))
		if err == nil && check != nil {
			err = check(resp)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func hostileJoins(a *attack) string {
	c := a.dial()
	for _, timeout := range []int32{0, -1, math.MinInt32, math.MaxInt32} {
		r := joinRequest("sessions", "")
		r.SessionTimeoutMillis = timeout
		a.code(fmt.Sprintf("a session of %d ms", timeout), c.ask(r).(*kmsg.JoinGroupResponse).ErrorCode, badSession)
	}
	none := joinRequest("sessions", "")
	none.Protocols = nil
	a.code("no protocols", c.ask(none).(*kmsg.JoinGroupResponse).ErrorCode, noProtocol)
	a.code("the id of nobody", c.ask(joinRequest("sessions", "nobody")).(*kmsg.JoinGroupResponse).ErrorCode, unknownMember)
	protocols := func(n, size int) *kmsg.JoinGroupRequest {
		r := joinRequest("protocols", "")
		r.Protocols = nil
		for i := range n {
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name, p.Metadata = fmt.Sprintf("p%d", i), make([]byte, size)
			r.Protocols = append(r.Protocols, p)
		}
		return r
	}
	for _, r := range []*kmsg.JoinGroupRequest{protocols(100_000, 0), protocols(2, 1<<20)} {
		d := a.dial()
		d.raw(d.encode(r, "attacker"))
		d.closed()
	}
	return "26, 23, 25; closed above 1 MiB"
}

// hostileSyncs sends assignments from a member that does not lead its group.
func hostileSyncs(a *attack) string {
	c := a.dial()
	member, generation := a.join(c, "synced")
	sync := func(member string, size int) *kmsg.SyncGroupRequest {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version, r.Group, r.MemberID, r.Generation = 3, "synced", member, generation
		as := kmsg.NewSyncGroupRequestGroupAssignment()
		as.MemberID, as.MemberAssignment = member, make([]byte, size)
		r.GroupAssignment = append(r.GroupAssignment, as)
		return r
	}
	a.code("a sync of nobody", c.ask(sync("nobody", 3<<20)).(*kmsg.SyncGroupResponse).ErrorCode, unknownMember)
	wrong := sync(member, 10)
	wrong.Generation++
	a.code("a sync of another generation", c.ask(wrong).(*kmsg.SyncGroupResponse).ErrorCode, oldGeneration)
	d := a.dial()
	d.raw(d.encode(sync(member, 100<<20), "attacker"))
	d.closed()
	a.leave(c, "synced", member)
	return "closed above 4 MiB; 25, 22"
}

// idsNeverUsed has the coordinator make a group and remember an id, for a session
// of half an hour, as often as it will.
func idsNeverUsed(a *attack) string {
	const together = 20
	conns := make([]*conn, 8)
	for i := range conns {
		conns[i] = a.dial()
	}
	client := strings.Repeat("c", 30_000)
	codes := make([]map[int16]int, len(conns))
	n := a.flood(len(conns), a.size(4_000, 60_000)/together, func(worker, n int) error {
		if codes[worker] == nil {
			codes[worker] = map[int16]int{}
		}
		return conns[worker].manyAs(client, together, func(i int) kmsg.Request {
			r := joinRequest(fmt.Sprintf("never-%d-%d-%d", worker, n, i), "")
			r.SessionTimeoutMillis = 1_800_000
			return r
		}, func(resp kmsg.Response) error {
			codes[worker][resp.(*kmsg.JoinGroupResponse).ErrorCode]++
			return nil
		})
	})
	total := map[int16]int{}
	for _, m := range codes {
		for code, n := range m {
			total[code] += n
		}
	}
	if total[idRequired] == 0 {
		a.Errorf("the answers are %v, want code %d", total, idRequired)
	}
	return fmt.Sprintf("%d joins, answered with %v", n*together, total)
}

// joinsNeverSynced parks members without end in one group.
func joinsNeverSynced(a *attack) string {
	const each = 60 // of the 64 that a connection may have in flight
	crowd := a.size(1_200, 50_000)
	first := a.dial()
	a.join(first, "crowded")
	r := joinRequest("crowded", "")
	r.Version = 3
	for range crowd / each {
		c := a.dial()
		var out []byte
		for range each {
			out = append(out, c.encode(r, "attacker")...)
		}
		c.raw(out)
	}
	eventually(a.T, func() error {
		if n := a.process.metrics(a.T)[`weir_requests_total{api="JoinGroup"}`]; n < float64(crowd) {
			return fmt.Errorf("%.0f joins have been read", n)
		}
		return nil
	})
	return fmt.Sprintf("%d joins", crowd)
}

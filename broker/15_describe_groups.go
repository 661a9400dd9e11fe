package broker

import (
	"context"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// describeMissing is the first version of DescribeGroups that has an error for a
// group that is not there; in earlier ones it is dead.
const describeMissing = 6

// groupOperations are the operations that a client may do with a group, as a set
// of the protocol's operation codes. Nothing is forbidden.
const groupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

func handleDescribeGroups(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DescribeGroupsRequest)
	return func(context.Context) Reply {
		resp := &wire.DescribeGroupsResponse{Groups: make([]wire.DescribedGroup, 0, len(req.Groups))}
		for _, id := range req.Groups {
			resp.Groups = append(resp.Groups, c.srv.describeClassic(h.Version, req, id))
		}
		return Reply{Body: resp}
	}
}

// describeClassic describes one group. The error message of a group without an
// error, from version 6 on, says why it is not stable.
func (s *server) describeClassic(version int16, req *wire.DescribeGroupsRequest, id string) wire.DescribedGroup {
	out := wire.DefaultDescribedGroup()
	out.GroupID = id
	if req.IncludeAuthorizedOperations {
		out.AuthorizedOperations = groupOperations
	}
	v, err := s.backend.groups.view(id)
	if err == nil && v.Kind != fsm.ClassicGroup {
		err = refused(wire.GroupIDNotFound, "group %s is not a classic group", shorten(id))
	}
	if err != nil {
		code := s.code(err)
		if code == wire.GroupIDNotFound {
			out.GroupState = group.Dead.String()
		}
		if code != wire.GroupIDNotFound || version >= describeMissing {
			out.ErrorCode, out.ErrorMessage = code, messageOf(err)
		}
		return out
	}
	if req.IncludeHistory {
		out.History = historyBytes(v.history)
	}
	stable := v.State == group.Stable
	out.GroupState, out.ProtocolType = v.State.String(), v.ProtocolType
	if stable {
		out.ProtocolData = v.Protocol
	} else {
		out.ErrorMessage = optional(v.why)
	}
	for i := range v.Members {
		m := &v.Members[i]
		d := wire.DescribedGroupMember{MemberID: m.ID, GroupInstanceID: optional(m.InstanceID), ClientID: m.ClientID, ClientHost: m.ClientHost}
		if stable {
			d.MemberMetadata, d.MemberAssignment = m.Metadata, m.Assignment
		}
		out.Members = append(out.Members, d)
	}
	return out
}

// groupView is a group as it is shown.
type groupView struct {
	group.Description
	why     string
	history []group.Transition
}

// view shows a group that this node coordinates.
func (g *groups) view(id string) (groupView, error) {
	t, im, err := g.enter(id)
	if err != nil {
		return groupView{}, err
	}
	defer t.shard.mu.Unlock()
	lg := t.find(im, id, g.now())
	if lg == nil {
		return groupView{}, errUnknownGroup
	}
	return groupView{Description: lg.core.Describe(), why: lg.core.Why(), history: lg.core.History()}, nil
}

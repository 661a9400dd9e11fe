package broker

import (
	"context"
	"strings"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleListGroups(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ListGroupsRequest)
	return func(context.Context) Reply {
		resp := &wire.ListGroupsResponse{Groups: []wire.ListedGroup{}}
		all, err := c.srv.backend.groups.list()
		if err != nil {
			resp.ErrorCode = c.srv.code(err)
			return Reply{Body: resp}
		}
		for _, g := range all {
			if admits(req.StatesFilter, g.GroupState) && admits(req.TypesFilter, g.GroupType) {
				resp.Groups = append(resp.Groups, g)
			}
		}
		return Reply{Body: resp}
	}
}

// admits tells whether a filter lets a word through; an empty one lets all.
func admits(filter []string, word string) bool {
	for _, f := range filter {
		if strings.EqualFold(f, word) {
			return true
		}
	}
	return len(filter) == 0
}

// list lists the groups in the slots that this node owns: those that have a row,
// and those that are about to have their first one.
func (g *groups) list() ([]wire.ListedGroup, error) {
	if !g.fresh() {
		return nil, errNoCoordinator
	}
	var out []wire.ListedGroup
	g.eachTenure(func(t *tenure, im *fsm.Image) { out = t.list(out, im) })
	return out, nil
}

func (t *tenure) list(out []wire.ListedGroup, im *fsm.Image) []wire.ListedGroup {
	for row := range im.Groups(t.shard.slot) {
		if t.live[row.ID] == nil {
			out = append(out, listedGroup(row.ID, row.Kind, row.ProtocolType, group.Empty))
		}
	}
	for id, lg := range t.live {
		_, stored := im.Group(id)
		if d := lg.core.Describe(); stored || !lg.core.Idle() {
			out = append(out, listedGroup(id, d.Kind, d.ProtocolType, d.State))
		}
	}
	return out
}

func listedGroup(id string, kind fsm.GroupKind, protocol string, state group.State) wire.ListedGroup {
	g := wire.ListedGroup{GroupID: id, ProtocolType: protocol, GroupState: state.String(), GroupType: kindName(kind)}
	if kind == fsm.ConsumerGroup {
		g.ProtocolType = "consumer"
	}
	return g
}

// kindName is Kafka's name of a kind of group.
func kindName(k fsm.GroupKind) string {
	if k == fsm.ConsumerGroup {
		return "consumer"
	}
	return "classic"
}

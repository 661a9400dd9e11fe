package broker

import (
	"context"
	"slices"
	"strconv"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleDescribeConfigs(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DescribeConfigsRequest)
	return func(context.Context) Reply {
		d := describeConfigs{srv: c.srv, im: c.srv.backend.image(), req: req}
		resp := &wire.DescribeConfigsResponse{Results: make([]wire.DescribeConfigsResult, len(req.Resources))}
		for i := range req.Resources {
			resp.Results[i] = d.resource(&req.Resources[i])
		}
		return Reply{Body: resp}
	}
}

// describeConfigs is one DescribeConfigs request.
type describeConfigs struct {
	srv *server
	im  *fsm.Image
	req *wire.DescribeConfigsRequest
}

func (d *describeConfigs) resource(in *wire.DescribeConfigsResource) wire.DescribeConfigsResult {
	out := wire.DescribeConfigsResult{ResourceType: in.ResourceType, ResourceName: in.ResourceName}
	var entries []configEntry
	var err error
	switch in.ResourceType {
	case wire.ResourceTopic:
		entries, err = d.topic(in.ResourceName)
	case wire.ResourceBroker:
		entries, err = d.broker(in.ResourceName)
	default:
		err = refused(wire.InvalidRequest, "resource type %d has no configs here: topics (2) and nodes (4) have", in.ResourceType)
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = d.srv.code(err), messageOf(err)
		return out
	}
	for _, e := range entries {
		if len(in.ConfigurationKeys) == 0 || slices.Contains(in.ConfigurationKeys, e.name) {
			out.Configs = append(out.Configs, e.result(d.req))
		}
	}
	return out
}

func (d *describeConfigs) topic(name string) ([]configEntry, error) {
	if err := fsm.CheckTopicName(name); err != nil {
		return nil, refused(wire.InvalidTopic, "%v", err)
	}
	t, err := topicOf(d.im, 0, 1, name, [16]byte{})
	if err != nil {
		return nil, err
	}
	first, _ := d.im.Partition(fsm.TopicPartition{Topic: t.ID})
	return topicEntries(t.Configs, first.Current(), d.srv.backend.ops.config), nil
}

// broker shows this node's configuration, or what holds for all nodes alike, which is
// nothing: each reads its own.
func (d *describeConfigs) broker(name string) ([]configEntry, error) {
	if name == "" {
		return nil, nil
	}
	if id, err := strconv.ParseInt(name, 10, 32); err != nil || fsm.BrokerID(id) != d.srv.backend.self {
		return nil, refused(wire.InvalidRequest, "this is node %d, which knows no configuration but its own; ask node %s", d.srv.backend.self, shorten(name))
	}
	return nodeEntries(d.srv.backend.ops.config), nil
}

// configEntry is one config with the places that its value could come from, the one
// that counts first.
type configEntry struct {
	name     string
	kind     int8
	doc      string
	readOnly bool
	sources  []configSource
}

// configSource is one place: whose key, what value.
type configSource struct {
	source int8 // wire.ConfigSource…
	name   string
	value  *string
}

func (e configEntry) result(req *wire.DescribeConfigsRequest) wire.DescribeConfigsResourceResult {
	out := wire.DescribeConfigsResourceResult{
		Name: e.name, Value: e.sources[0].value, ReadOnly: e.readOnly, ConfigSource: e.sources[0].source, ConfigType: e.kind,
	}
	if req.IncludeSynonyms {
		for _, s := range e.sources {
			out.Synonyms = append(out.Synonyms, wire.DescribeConfigsSynonym{Name: s.name, Value: s.value, Source: s.source})
		}
	}
	if req.IncludeDocumentation {
		out.Documentation = optional(e.doc)
	}
	return out
}

// topicEntries are all configs of a topic whose own are given: its partitions have
// those replicas, and the nodes are configured by node. Those of Kafka without effect
// come with them, read-only.
func topicEntries(own map[string]string, replicas []fsm.BrokerID, node Config) []configEntry {
	var out []configEntry
	for _, row := range fsm.TopicConfigs() {
		e := configEntry{name: row.Name, kind: configType(row.Type), doc: row.Doc}
		if value, ok := own[row.Name]; ok {
			e.sources = append(e.sources, configSource{wire.ConfigSourceTopic, row.Name, &value})
		}
		usual := row.Default
		if row.Name == fsm.MinInsyncReplicas {
			usual = strconv.Itoa(int(fsm.EffectiveMinISR(0, replicas, nil)))
		}
		name := row.Name
		if value, ok := node.topicDefault(row.Name); ok {
			name = row.Node
			if value != usual {
				e.sources = append(e.sources, configSource{wire.ConfigSourceStaticBroker, name, &value})
			}
		}
		e.sources = append(e.sources, configSource{wire.ConfigSourceDefault, name, &usual})
		out = append(out, e)
	}
	for _, row := range fsm.InertTopicConfigs() {
		e := inertEntry(row.Name, configType(row.Type), &row.Default)
		if value, ok := node.topicDefault(row.Name); ok {
			e.doc = "follows " + row.Node + " of the node"
			e.sources = []configSource{{wire.ConfigSourceDefault, row.Node, &value}}
		}
		out = append(out, e)
	}
	return out
}

// nodeEntries are all settings of a node, which are read when it starts, and after
// them Kafka's that have no effect.
func nodeEntries(node Config) []configEntry {
	var out []configEntry
	for _, s := range node.settings() {
		e := configEntry{name: s.name, kind: s.kind, doc: s.doc, readOnly: true}
		if !sameValue(s.value, s.fallback) {
			e.sources = append(e.sources, configSource{wire.ConfigSourceStaticBroker, s.name, s.value})
		}
		e.sources = append(e.sources, configSource{wire.ConfigSourceDefault, s.name, s.fallback})
		out = append(out, e)
	}
	return append(out, inertEntries()...)
}

func sameValue(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// configType is a type of config in the protocol's numbers.
func configType(t fsm.ConfigType) int8 {
	switch t {
	case fsm.BooleanConfig:
		return wire.ConfigTypeBoolean
	case fsm.StringConfig:
		return wire.ConfigTypeString
	case fsm.IntConfig:
		return wire.ConfigTypeInt
	case fsm.LongConfig:
		return wire.ConfigTypeLong
	case fsm.ListConfig:
		return wire.ConfigTypeList
	case fsm.DoubleConfig:
		return wire.ConfigTypeDouble
	}
	return wire.ConfigTypeUnknown
}

package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func describeConfigsOf(v int16, kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.SetVersion(v)
	r.IncludeSynonyms, r.IncludeDocumentation = true, true
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, keys
	r.Resources = append(r.Resources, res)
	return r
}

// sources writes a config as its value and the places it could come from.
func sources(c kmsg.DescribeConfigsResponseResourceConfig) string {
	value := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	out := fmt.Sprintf("%s from %d:", value(c.Value), c.Source)
	for _, s := range c.ConfigSynonyms {
		out += fmt.Sprintf(" %s=%s(%d)", s.Name, value(s.Value), s.Source)
	}
	return out
}

func TestDescribeTopicConfigs(t *testing.T) {
	versions(wire.KeyDescribeConfigs, func(v int16) {
		ts := newTestServer(t, nil)
		ts.topic("t", [][2]string{{"retention.ms", "5"}, {"max.message.bytes", "7"}, {"weir.durability", "fsync"}}, selfID)
		got := ts.dial().ask(describeConfigsOf(v, kmsg.ConfigResourceTypeTopic, "t")).(*kmsg.DescribeConfigsResponse).Resources[0]
		if got.ErrorCode != 0 || len(got.Configs) != len(fsm.TopicConfigs())+len(fsm.InertTopicConfigs()) {
			t.Fatalf("version %d: %v with %d configs", v, wire.Code(got.ErrorCode), len(got.Configs))
		}
		for name, want := range map[string]string{
			"retention.ms":           "5 from 1: retention.ms=5(1) log.retention.ms=604800000(5)",
			"max.message.bytes":      "7 from 1: max.message.bytes=7(1) message.max.bytes=2000000(4) message.max.bytes=1048588(5)",
			"weir.durability":        "fsync from 1: weir.durability=fsync(1) weir.durability=replicated(5)",
			"segment.bytes":          "1073741824 from 5: log.segment.bytes=1073741824(5)",
			"min.insync.replicas":    "2 from 5: min.insync.replicas=2(5)", // a majority of three
			"cleanup.policy":         "delete from 5: log.cleanup.policy=delete(5)",
			"message.timestamp.type": "CreateTime from 5: message.timestamp.type=CreateTime(5)",
		} {
			i := slices.IndexFunc(got.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return c.Name == name })
			if sources(got.Configs[i]) != want || got.Configs[i].ReadOnly || got.Configs[i].IsSensitive {
				t.Errorf("version %d: %s is %s, want %s", v, name, sources(got.Configs[i]), want)
			}
		}
		for name, want := range map[string]string{
			"preallocate":          "false from 5: preallocate=false(5)",
			"index.interval.bytes": "4096 from 5: log.index.interval.bytes=4096(5)",
		} {
			i := slices.IndexFunc(got.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return c.Name == name })
			if sources(got.Configs[i]) != want || !got.Configs[i].ReadOnly {
				t.Errorf("version %d: %s without effect is %s, want %s", v, name, sources(got.Configs[i]), want)
			}
		}
		for _, c := range got.Configs {
			if v >= 3 && (c.ConfigType == 0 || c.Documentation == nil) {
				t.Errorf("version %d: %s has type %d, documentation %v", v, c.Name, c.ConfigType, c.Documentation)
			}
		}
		some := ts.dial().ask(describeConfigsOf(v, kmsg.ConfigResourceTypeTopic, "t", "segment.ms", "brand.new")).(*kmsg.DescribeConfigsResponse).Resources[0]
		if len(some.Configs) != 1 || some.Configs[0].Name != "segment.ms" {
			t.Errorf("version %d: one config asked for: %+v", v, some.Configs)
		}
		r := describeConfigsOf(v, kmsg.ConfigResourceTypeTopic, "t", "segment.ms")
		r.IncludeSynonyms, r.IncludeDocumentation = false, false
		plain := ts.dial().ask(r).(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0]
		if len(plain.ConfigSynonyms) != 0 || plain.Documentation != nil {
			t.Errorf("version %d: more than was asked for: %+v", v, plain)
		}
	})
}

func TestDescribeNodeConfigs(t *testing.T) {
	versions(wire.KeyDescribeConfigs, func(v int16) {
		ts := newTestServer(t, nil)
		got := ts.dial().ask(describeConfigsOf(v, kmsg.ConfigResourceTypeBroker, "1")).(*kmsg.DescribeConfigsResponse).Resources[0]
		if got.ErrorCode != 0 || len(got.Configs) != len(Keys())+len(inertEntries()) {
			t.Fatalf("version %d: %v with %d configs, want %d", v, wire.Code(got.ErrorCode), len(got.Configs), len(Keys())+len(inertEntries()))
		}
		for name, want := range map[string]string{
			"message.max.bytes":   "2000000 from 4: message.max.bytes=2000000(4) message.max.bytes=1048588(5)",
			"num.partitions":      "1 from 5: num.partitions=1(5)",
			"log.retention.hours": "168 from 5: log.retention.hours=168(5)",
			"log.retention.ms":    "null from 5: log.retention.ms=null(5)",
			"num.io.threads":      "8 from 5: num.io.threads=8(5)",
			"ssl.key.password":    "null from 5: ssl.key.password=null(5)",
			"listeners":           "PLAINTEXT://127.0.0.1:9092 from 5: listeners=PLAINTEXT://127.0.0.1:9092(5)",
		} {
			i := slices.IndexFunc(got.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return c.Name == name })
			if sources(got.Configs[i]) != want || !got.Configs[i].ReadOnly {
				t.Errorf("version %d: %s is %s, want %s", v, name, sources(got.Configs[i]), want)
			}
		}
		if all := ts.dial().ask(describeConfigsOf(v, kmsg.ConfigResourceTypeBroker, "")).(*kmsg.DescribeConfigsResponse).Resources[0]; all.ErrorCode != 0 || len(all.Configs) != 0 {
			t.Errorf("version %d: of all nodes: %+v", v, all)
		}
		for _, tc := range []struct {
			kind kmsg.ConfigResourceType
			name string
			want wire.Code
		}{
			{kmsg.ConfigResourceTypeBroker, "2", wire.InvalidRequest}, {kmsg.ConfigResourceTypeBroker, "one", wire.InvalidRequest},
			{kmsg.ConfigResourceTypeBrokerLogger, "1", wire.InvalidRequest}, {kmsg.ConfigResourceTypeTopic, "absent", wire.UnknownTopicOrPartition},
			{kmsg.ConfigResourceTypeTopic, "a/b", wire.InvalidTopic},
		} {
			res := ts.dial().ask(describeConfigsOf(v, tc.kind, tc.name)).(*kmsg.DescribeConfigsResponse).Resources[0]
			if wire.Code(res.ErrorCode) != tc.want || res.ErrorMessage == nil || res.ResourceName != tc.name || res.ResourceType != tc.kind {
				t.Errorf("version %d: %d %s: %+v, want %v", v, tc.kind, tc.name, res, tc.want)
			}
		}
	})
}

// TestSettingsCoverKeys: every key that can be set is shown, with the value that was set.
func TestSettingsCoverKeys(t *testing.T) {
	rows := settingRows()
	for _, k := range Keys() {
		row, ok := rows[k.Name]
		if !ok {
			t.Errorf("%s is a key that DescribeConfigs would not show: give it a row in settings.go", k.Name)
			continue
		}
		delete(rows, k.Name)
		for _, value := range []string{"77", "true", "PLAINTEXT://h:77", "range"} {
			c := DefaultConfig()
			if c.Set(k.Name, value) != nil {
				continue
			}
			if got := row.get(&c); got == nil || *got != value {
				t.Errorf("%s was set to %s and is shown as %v", k.Name, value, got)
			}
			break
		}
	}
	for name := range rows {
		t.Errorf("settings.go has a row for %s, which is no key", name)
	}
}

func TestAlterConfigsHandler(t *testing.T) {
	versions(wire.KeyAlterConfigs, func(v int16) {
		ts := newTestServer(t, nil)
		id, _ := ts.topic("t", nil, selfID)
		ts.topic("twice", nil, selfID)
		ts.topic("null", nil, selfID)
		r := kmsg.NewPtrAlterConfigsRequest()
		r.SetVersion(v)
		r.ValidateOnly = true
		add := func(kind kmsg.ConfigResourceType, name string, value *string) {
			res := kmsg.NewAlterConfigsRequestResource()
			res.ResourceType, res.ResourceName = kind, name
			res.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: value}}
			r.Resources = append(r.Resources, res)
		}
		five := kmsg.StringPtr("5")
		add(kmsg.ConfigResourceTypeTopic, "t", five)
		add(kmsg.ConfigResourceTypeTopic, "absent", five)
		add(kmsg.ConfigResourceTypeTopic, "null", nil)
		add(kmsg.ConfigResourceTypeTopic, "twice", five)
		add(kmsg.ConfigResourceTypeTopic, "twice", five)
		add(kmsg.ConfigResourceTypeBroker, "1", five)
		add(kmsg.ConfigResourceTypeBroker, "", five)
		got := ts.dial().ask(r).(*kmsg.AlterConfigsResponse).Resources
		for i, want := range []wire.Code{wire.None, wire.UnknownTopicOrPartition, wire.InvalidRequest, wire.InvalidRequest, wire.InvalidRequest,
			wire.InvalidRequest, wire.InvalidRequest} {
			if wire.Code(got[i].ErrorCode) != want || (got[i].ErrorMessage == nil) != (want == wire.None) || got[i].ResourceName != r.Resources[i].ResourceName {
				t.Errorf("version %d: %s: %+v, want %v", v, got[i].ResourceName, got[i], want)
			}
		}
		if msg := *got[5].ErrorMessage; !strings.Contains(msg, "restart the node") {
			t.Errorf("version %d: of a node: %q", v, msg)
		}
		if w := ts.cluster.altered; len(w) != 1 || w[0].ID != id || !w[0].Whole || !w[0].ValidateOnly || w[0].Ops[0] != (fsm.ConfigOp{Name: "retention.ms", Value: "5"}) {
			t.Errorf("version %d: the controller was asked for %+v", v, w)
		}
	})
}

func TestIncrementalAlterConfigsHandler(t *testing.T) {
	versions(wire.KeyIncrementalAlterConfigs, func(v int16) {
		ts := newTestServer(t, nil)
		id, _ := ts.topic("t", nil, selfID)
		ts.topic("op", nil, selfID)
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.SetVersion(v)
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
		for op, name := range []string{"a", "b", "c", "d"} {
			entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			entry.Name, entry.Op = name, kmsg.IncrementalAlterConfigOp(op)
			if op != int(wire.ConfigDelete) {
				entry.Value = kmsg.StringPtr("v")
			}
			res.Configs = append(res.Configs, entry)
		}
		bad := res
		bad.ResourceName = "op"
		bad.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "a", Op: 9, Value: kmsg.StringPtr("v")}}
		r.Resources = append(r.Resources, res, bad)
		got := ts.dial().ask(r).(*kmsg.IncrementalAlterConfigsResponse).Resources
		if got[0].ErrorCode != 0 || wire.Code(got[1].ErrorCode) != wire.InvalidRequest || !strings.Contains(*got[1].ErrorMessage, "no operation 9") {
			t.Errorf("version %d: %+v", v, got)
		}
		want := []fsm.ConfigOp{{Name: "a", Op: fsm.SetConfig, Value: "v"}, {Name: "b", Op: fsm.DeleteConfig},
			{Name: "c", Op: fsm.AppendConfig, Value: "v"}, {Name: "d", Op: fsm.SubtractConfig, Value: "v"}}
		if w := ts.cluster.altered; len(w) != 1 || w[0].ID != id || w[0].Whole || w[0].ValidateOnly || !slices.Equal(w[0].Ops, want) {
			t.Errorf("version %d: the controller was asked for %+v", v, w)
		}
		ts.cluster.answer = controller.TopicResult{Outcome: controller.Outcome{Err: wire.InvalidConfig, Msg: "no"}}
		if got := ts.dial().ask(r).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; wire.Code(got.ErrorCode) != wire.InvalidConfig || *got.ErrorMessage != "no" {
			t.Errorf("version %d: refused: %+v", v, got)
		}
		ts.cluster.err = controller.ErrUnknown
		if got := ts.dial().ask(r).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; wire.Code(got.ErrorCode) != wire.RequestTimedOut {
			t.Errorf("version %d: with an unknown outcome: %+v", v, got)
		}
	})
}

// TestNodeConfigsToDelete: Kafka's tools take throttles away that nobody has set, and fail
// where that is refused.
func TestNodeConfigsToDelete(t *testing.T) {
	ts := newTestServer(t, nil)
	ask := func(op kmsg.IncrementalAlterConfigOp, names ...string) string {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, "2"
		for _, name := range names {
			res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Op: op, Value: kmsg.StringPtr("1")})
		}
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.Resources = append(r.Resources, res)
		got := ts.dial().ask(r).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
		if got.ErrorMessage == nil {
			return wire.Code(got.ErrorCode).Name()
		}
		return wire.Code(got.ErrorCode).Name() + " " + *got.ErrorMessage
	}
	if got := ask(kmsg.IncrementalAlterConfigOpDelete, throttleRates[:]...); got != "NONE" {
		t.Errorf("delete: %s", got)
	}
	if got := ask(kmsg.IncrementalAlterConfigOpSet, throttleRates[0]); !strings.HasPrefix(got, "INVALID_CONFIG") || !strings.Contains(got, "not throttled here") {
		t.Errorf("set a throttle: %s", got)
	}
	if got := ask(kmsg.IncrementalAlterConfigOpSet, "num.io.threads"); !strings.HasPrefix(got, "INVALID_REQUEST") || !strings.Contains(got, "restart the node") {
		t.Errorf("set another: %s", got)
	}
	if len(ts.cluster.altered) != 0 {
		t.Errorf("the controller was asked for %+v", ts.cluster.altered)
	}
}

func TestListConfigResourcesHandler(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("t", nil, selfID)
	ts.topic("u", nil, selfID)
	ask := func(v int16, types ...int8) string {
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.SetVersion(v)
		r.ResourceTypes = append(r.ResourceTypes, types...)
		resp := ts.dial().ask(r).(*kmsg.ListConfigResourcesResponse)
		out := []string{}
		for _, c := range resp.ConfigResources {
			out = append(out, fmt.Sprintf("%s(%d)", c.Name, c.Type))
		}
		return strings.TrimSpace(fmt.Sprint(wire.Code(resp.ErrorCode).Name(), " ", strings.Join(out, " ")))
	}
	for _, c := range []struct {
		version int16
		types   []int8
		want    string
	}{
		{0, nil, "NONE"},
		{1, nil, "NONE t(2) u(2) 1(4) 2(4) 3(4)"},
		{1, []int8{2}, "NONE t(2) u(2)"},
		{1, []int8{4, 16}, "NONE 1(4) 2(4) 3(4)"},
		{1, []int8{8, 32}, "NONE"},
		{1, []int8{2, 99}, "UNSUPPORTED_VERSION"},
	} {
		if got := ask(c.version, c.types...); got != c.want {
			t.Errorf("version %d, types %v: got %q, want %q", c.version, c.types, got, c.want)
		}
	}
}

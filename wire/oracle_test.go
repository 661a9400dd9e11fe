package wire

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire/codec"
)

// The oracle is franz-go's kmsg: another implementation of the same schemas. Each
// message is filled with random values on one side, goes over to the other side
// as bytes, and must come back as the same bytes and the same values.

const oracleRounds = 40

// oracleBody is what kmsg's requests and responses have in common.
type oracleBody interface {
	SetVersion(int16)
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
	Default()
}

func oracleRequest(a API, v int16) oracleBody {
	r := kmsg.RequestForKey(int16(a.Key))
	r.SetVersion(v)
	return r.(oracleBody)
}

func oracleResponse(a API, v int16) oracleBody {
	r := kmsg.ResponseForKey(int16(a.Key))
	r.SetVersion(v)
	return r.(oracleBody)
}

func TestOracleHasEveryVersion(t *testing.T) {
	for _, a := range APIs() {
		r := kmsg.RequestForKey(int16(a.Key))
		if r == nil {
			t.Errorf("the oracle does not know %s", a.Name)
		} else if r.MaxVersion() < a.Max {
			t.Errorf("the oracle knows %s to version %d, the table goes to %d", a.Name, r.MaxVersion(), a.Max)
		}
	}
}

// encodeBody and decodeBody code a body alone, without frame and header.
func encodeBody(t testing.TB, a API, v int16, m Message) []byte {
	t.Helper()
	c := codec.NewWriter(nil).SetVersion(v).Flexible(a.Flexible(v))
	m.code(c)
	if err := c.Err(); err != nil {
		t.Fatalf("encode %T version %d: %v\n%+v", m, v, err, m)
	}
	return c.Bytes()
}

func decodeBody(t testing.TB, a API, v int16, m Message, p []byte) {
	t.Helper()
	c := codec.NewReader(p, math.MaxInt).SetVersion(v).Flexible(a.Flexible(v))
	m.code(c)
	if err := c.End(); err != nil {
		t.Fatalf("decode %T version %d: %v\n%x", m, v, err, p)
	}
}

func TestOracle(t *testing.T) {
	seeds.Alone(t)
	seed := uint64(seeds.For(t))
	f := newFiller(seed)
	eachVersion(t, func(t *testing.T, a API, v int16) {
		for range oracleRounds {
			fromOracle(t, f, a, v, oracleRequest(a, v), a.NewRequest())
			fromOracle(t, f, a, v, oracleResponse(a, v), a.NewResponse())
			toOracle(t, f, a, v, a.NewRequest(), oracleRequest(a, v))
			toOracle(t, f, a, v, a.NewResponse(), oracleResponse(a, v))
			if t.Failed() {
				return
			}
		}
	})
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

// fromOracle: the oracle's bytes decode to the same values and encode to the same bytes.
func fromOracle(t *testing.T, f *filler, a API, v int16, theirs oracleBody, ours Message) {
	t.Helper()
	f.message(theirs)
	absentTags(reflect.ValueOf(theirs).Elem(), v)
	want := theirs.AppendTo(nil)
	decodeBody(t, a, v, ours, want)
	if got := encodeBody(t, a, v, ours); !bytes.Equal(got, want) {
		t.Fatalf("%T version %d\n got %x\nwant %x\nfrom %+v", ours, v, got, want, theirs)
	}
	sameAsOracle(t, a, v, ours, theirs, want)
}

// toOracle: our bytes are taken by the oracle, which makes the same of them.
func toOracle(t *testing.T, f *filler, a API, v int16, ours Message, theirs oracleBody) {
	t.Helper()
	f.message(ours)
	nameEverything(reflect.ValueOf(ours).Elem())
	p := encodeBody(t, a, v, ours)
	if err := theirs.ReadFrom(p); err != nil {
		t.Fatalf("the oracle refuses %T version %d: %v\n%x\nfrom %+v", ours, v, err, p, ours)
	}
	if back := theirs.AppendTo(nil); !bytes.Equal(back, p) {
		t.Fatalf("%T version %d\n  ours %x\noracle %x\nfrom %+v", ours, v, p, back, ours)
	}
}

// sameAsOracle compares our values with those that the oracle reads from the
// bytes itself, so that both hold defaults where the version lacks a field.
func sameAsOracle(t *testing.T, a API, v int16, ours Message, theirs oracleBody, p []byte) {
	t.Helper()
	theirs = reflect.New(reflect.TypeOf(theirs).Elem()).Interface().(oracleBody)
	theirs.Default()
	theirs.SetVersion(v)
	if err := theirs.ReadFrom(p); err != nil {
		t.Fatalf("the oracle refuses its own %T version %d: %v", theirs, v, err)
	}
	o := reflect.ValueOf(ours).Elem()
	if diff := compare(o, reflect.ValueOf(theirs).Elem(), a.Name, v); diff != "" {
		t.Fatalf("%T version %d: %s\n  ours %+v\noracle %+v", ours, v, diff, ours, theirs)
	}
}

// tagsFrom names the tagged fields that exist only from some version on. The
// oracle writes them in every flexible version; a broker must not.
var tagsFrom = map[string]int16{
	"ProduceResponse.Brokers":                       10,
	"ProduceResponseTopicPartition.CurrentLeader":   10,
	"FetchRequest.ReplicaState":                     15,
	"FetchRequestTopicPartition.ReplicaDirectoryID": 17,
	"FetchRequestTopicPartition.HighWatermark":      18,
	"FetchResponse.Brokers":                         16,
}

// absentTags gives tagged fields that the version lacks their defaults.
func absentTags(v reflect.Value, version int16) {
	switch v.Kind() {
	case reflect.Struct:
		fresh := reflect.New(v.Type())
		fresh.Interface().(interface{ Default() }).Default()
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			if from, ok := tagsFrom[name]; ok && version < from {
				v.Field(i).Set(fresh.Elem().Field(i))
			} else if name != "FetchRequest.Version" && v.Type().Field(i).Name != "UnknownTags" {
				absentTags(v.Field(i), version)
			}
		}
		if v.Type().Name() == "FetchResponseTopicPartition" && v.FieldByName("RecordBatches").IsNil() {
			v.FieldByName("RecordBatches").SetBytes([]byte{}) // null is ours never
		}
	case reflect.Slice:
		for i := range v.Len() {
			absentTags(v.Index(i), version)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			absentTags(v.Elem(), version)
		}
	}
}

// nameEverything sets the names that only some versions allow to be null.
func nameEverything(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fld := v.Field(i)
			if v.Type().Field(i).Name == "Name" && fld.Kind() == reflect.Pointer && fld.IsNil() {
				name := "named"
				fld.Set(reflect.ValueOf(&name))
			}
			nameEverything(fld)
		}
	case reflect.Slice:
		for i := range v.Len() {
			nameEverything(v.Index(i))
		}
	}
}

// aliases gives, for a field of the oracle, the names it may have with us.
var aliases = map[string][]string{
	"Assignment":               {"Assignment", "Assignments"},
	"AuthorizedOperations":     {"TopicAuthorizedOperations", "ClusterAuthorizedOperations"},
	"Brokers":                  {"Brokers", "NodeEndpoints"},
	"ConfigErrorCode":          {"TopicConfigErrorCode"},
	"ConfigNames":              {"ConfigurationKeys"},
	"ConfigSynonyms":           {"Synonyms"},
	"CoordinatorType":          {"KeyType"},
	"Dir":                      {"LogDir"},
	"Dirs":                     {"Results"},
	"Epoch":                    {"Epoch", "ReplicaEpoch", "GroupEpoch"},
	"ErrorMessage":             {"ErrorMessage", "BatchIndexErrorMessage"},
	"ErrorRecords":             {"RecordErrors"},
	"ForgottenTopics":          {"ForgottenTopicsData"},
	"Generation":               {"GenerationID", "GenerationIDOrMemberEpoch"},
	"Group":                    {"GroupID"},
	"GroupAssignment":          {"Assignments"},
	"Groups":                   {"Groups", "GroupsNames", "GroupIDs", "Results"},
	"HeartbeatIntervalMillis":  {"HeartbeatIntervalMs"},
	"ID":                       {"ReplicaID"},
	"ISR":                      {"IsrNodes"},
	"InstanceID":               {"InstanceID", "GroupInstanceID"},
	"IsFuture":                 {"IsFutureKey"},
	"LastKnownELR":             {"LastKnownElr"},
	"Leader":                   {"LeaderID"},
	"LeaderEpoch":              {"LeaderEpoch", "CommittedLeaderEpoch"},
	"LeaderID":                 {"LeaderID", "Leader"},
	"LogAppendTime":            {"LogAppendTimeMs"},
	"MaxWaitMillis":            {"MaxWaitMs"},
	"MemberAssignment":         {"MemberAssignment", "Assignment"},
	"Metadata":                 {"Metadata", "CommittedMetadata"},
	"Name":                     {"Name", "ResourceName"},
	"NodeID":                   {"NodeID", "BrokerID"},
	"Offset":                   {"Offset", "CommittedOffset"},
	"Op":                       {"ConfigOperation"},
	"Partition":                {"Partition", "PartitionIndex", "Index", "PartitionID"},
	"Partitions":               {"Partitions", "PartitionData", "PartitionResponses", "PartitionIndexes", "PartitionResult"},
	"Protocol":                 {"ProtocolName", "ProtocolData"},
	"ProtocolMetadata":         {"Metadata", "MemberMetadata"},
	"Rack":                     {"Rack", "RackID"},
	"RebalanceTimeoutMillis":   {"RebalanceTimeoutMs"},
	"RecordBatches":            {"Records"},
	"RelativeOffset":           {"BatchIndex"},
	"ReplicaAssignment":        {"Assignments"},
	"Replicas":                 {"ReplicaNodes", "BrokerIDs"},
	"Resources":                {"Resources", "Results", "Responses"},
	"RetentionTimeMillis":      {"RetentionTimeMs"},
	"SessionTimeoutMillis":     {"SessionTimeoutMs"},
	"Size":                     {"PartitionSize"},
	"Source":                   {"ConfigSource"},
	"State":                    {"GroupState"},
	"SubscribedTopics":         {"SubscribedTopicNames"},
	"ThrottleMillis":           {"ThrottleTimeMs"},
	"TimeoutMillis":            {"TimeoutMs"},
	"Topic":                    {"Topic", "Name", "TopicName"},
	"Topics":                   {"Topics", "TopicData", "Responses", "TopicPartitions", "ReplicaElectionResults", "Results"},
	"TransactionID":            {"TransactionalID"},
	"TransactionTimeoutMillis": {"TransactionTimeoutMs"},
	"Type":                     {"ResourceType"},
}

// notOurs lists fields of the oracle that no version of ours has.
var notOurs = []string{"Version", "UnknownTags", "MaxNumOffsets", "OldStyleOffsets", "IsDefault",
	"OffsetCommitRequestTopicPartition.Timestamp"}

// notTheirs counts, for structs of the oracle, the fields that only ours has: one
// struct of ours stands for two in OffsetFetch, and the history of a group has a tag
// of our own.
var notTheirs = map[string]int{
	"ConsumerGroupDescribeRequest":       1,
	"ConsumerGroupDescribeResponseGroup": 1,
	"DescribeGroupsRequest":              1,
	"DescribeGroupsResponseGroup":        1,

	"OffsetFetchRequestTopic":  1,
	"OffsetFetchResponseTopic": 1,
}

// defaultsApart lists fields for which the oracle's default, where a version lacks
// them, is not the schema's: the version from which they exist, and the schema's.
var defaultsApart = map[string]struct {
	from int16
	want any
}{
	"MetadataRequest.AllowAutoTopicCreation": {4, true},
	"ListOffsetsRequest.TimeoutMillis":       {10, int32(0)},
	"ProduceRequest.TimeoutMillis":           {0, int32(0)},
	"DeleteTopicsRequest.TimeoutMillis":      {0, int32(0)},
	"DeleteRecordsRequest.TimeoutMillis":     {0, int32(0)},
	"CreatePartitionsRequest.TimeoutMillis":  {0, int32(0)},
}

// TestFreshMessages: new messages hold the same defaults as the oracle's.
func TestFreshMessages(t *testing.T) {
	for _, a := range APIs() {
		for ours, theirs := range map[Message]oracleBody{a.NewRequest(): oracleRequest(a, a.Max), a.NewResponse(): oracleResponse(a, a.Max)} {
			theirs.Default()
			if d := compare(reflect.ValueOf(ours).Elem(), reflect.ValueOf(theirs).Elem(), a.Name, -1); d != "" {
				t.Errorf("%T: %s", ours, d)
			}
		}
	}
}

// compare gives a description of the first difference, or "".
func compare(ours, theirs reflect.Value, path string, v int16) string {
	if ours.Kind() == reflect.Pointer && theirs.Kind() != reflect.Pointer {
		if ours.IsNil() {
			fresh := reflect.New(theirs.Type())
			fresh.Interface().(interface{ Default() }).Default()
			return differs(reflect.DeepEqual(fresh.Elem().Interface(), theirs.Interface()), path, nil, theirs)
		}
		ours = ours.Elem()
	}
	switch theirs.Kind() {
	case reflect.Struct:
		return compareStruct(ours, theirs, path, v)
	case reflect.Pointer:
		return comparePointer(ours, theirs, path, v)
	case reflect.Slice, reflect.Array:
		if ours.Len() != theirs.Len() {
			return differs(false, path, ours, theirs)
		}
		for i := range theirs.Len() {
			if d := compare(ours.Index(i), theirs.Index(i), fmt.Sprintf("%s[%d]", path, i), v); d != "" {
				return d
			}
		}
		return ""
	default:
		return differs(ours.CanConvert(theirs.Type()) && ours.Convert(theirs.Type()).Equal(theirs), path, ours, theirs)
	}
}

func comparePointer(ours, theirs reflect.Value, path string, v int16) string {
	if ours.Kind() != reflect.Pointer { // a name that is never null with us
		return differs(!theirs.IsNil() && theirs.Elem().String() == ours.String(), path, ours, theirs)
	}
	if ours.IsNil() || theirs.IsNil() {
		return differs(ours.IsNil() == theirs.IsNil(), path, ours, theirs)
	}
	return compare(ours.Elem(), theirs.Elem(), path, v)
}

func compareStruct(ours, theirs reflect.Value, path string, v int16) string {
	used := 0
	for i := range theirs.NumField() {
		name := theirs.Type().Field(i).Name
		if slices.Contains(notOurs, name) || slices.Contains(notOurs, theirs.Type().Name()+"."+name) {
			continue
		}
		mine := fieldLike(ours, name)
		if !mine.IsValid() {
			return fmt.Sprintf("%s.%s: we have no such field", path, name)
		}
		used++
		if apart, ok := defaultsApart[theirs.Type().Name()+"."+name]; ok && v < apart.from {
			if !reflect.DeepEqual(mine.Interface(), apart.want) {
				return differs(false, path+"."+name, mine, reflect.ValueOf(apart.want))
			}
			continue
		}
		if d := compare(mine, theirs.Field(i), path+"."+name, v); d != "" {
			return d
		}
	}
	if _, ok := ours.Type().FieldByName("RecordsSize"); ok {
		used++
	}
	if used += notTheirs[theirs.Type().Name()]; used != ours.NumField() {
		return fmt.Sprintf("%s: %s has %d fields, the oracle %d", path, ours.Type(), ours.NumField(), used)
	}
	return ""
}

func fieldLike(ours reflect.Value, name string) reflect.Value {
	for _, n := range append(aliases[name], name) {
		if fld := ours.FieldByName(n); fld.IsValid() {
			return fld
		}
	}
	return reflect.Value{}
}

func differs(same bool, path string, ours any, theirs any) string {
	if same {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s: ours %v, the oracle's %v", path, ours, theirs))
}

// TestUnknownTags: tagged fields that nobody knows, in every struct, are skipped
// and change nothing.
func TestUnknownTags(t *testing.T) {
	f := newFiller(uint64(seeds.For(t)))
	eachVersion(t, func(t *testing.T, a API, v int16) {
		if !a.Flexible(v) {
			return
		}
		for _, pair := range []struct {
			theirs oracleBody
			ours   func() Message
		}{
			{oracleRequest(a, v), func() Message { return a.NewRequest() }},
			{oracleResponse(a, v), func() Message { return a.NewResponse() }},
		} {
			f.message(pair.theirs)
			absentTags(reflect.ValueOf(pair.theirs).Elem(), v)
			plain, tagged := pair.ours(), pair.ours()
			decodeBody(t, a, v, plain, pair.theirs.AppendTo(nil))
			if addUnknownTags(reflect.ValueOf(pair.theirs).Elem()) == 0 {
				t.Fatalf("%T has no place for tags", pair.theirs)
			}
			decodeBody(t, a, v, tagged, pair.theirs.AppendTo(nil))
			if !reflect.DeepEqual(plain, tagged) {
				t.Errorf("%T version %d\nwithout unknown tags %+v\n   with unknown tags %+v", plain, v, plain, tagged)
			}
		}
	})
}

func addUnknownTags(v reflect.Value) int {
	n := 0
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if tags, ok := v.Field(i).Addr().Interface().(*kmsg.Tags); ok {
				tags.Set(100, []byte("a field of the future"))
				tags.Set(70000, kbin.AppendInt64(nil, 1))
				n++
			} else {
				n += addUnknownTags(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			n += addUnknownTags(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			n += addUnknownTags(v.Elem())
		}
	}
	return n
}

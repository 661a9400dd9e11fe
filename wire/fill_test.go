package wire

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

// filler sets every exported field of a struct to random values by reflection.
// It serves our messages and the oracle's alike.
type filler struct {
	rng *rand.Rand
}

func newFiller(seed uint64) *filler { return &filler{rng: rand.New(rand.NewPCG(seed, 0))} }

// mayBeNil lists the slices that have a null form, or that are absent when empty.
var mayBeNil = map[string]bool{
	"MetadataRequest.Topics":                                  true,
	"FetchPartitionResponse.AbortedTransactions":              true,
	"FetchResponseTopicPartition.AbortedTransactions":         true,
	"CreatableTopicResult.Configs":                            true,
	"CreateTopicsResponseTopic.Configs":                       true,
	"ProducePartition.Records":                                true,
	"ProduceRequestTopicPartition.Records":                    true,
	"ProduceResponse.NodeEndpoints":                           true,
	"FetchResponse.NodeEndpoints":                             true,
	"ApiVersionsResponse.SupportedFeatures":                   true,
	"ApiVersionsResponse.FinalizedFeatures":                   true,
	"DescribedPartition.EligibleLeaderReplicas":               true,
	"DescribedPartition.LastKnownElr":                         true,
	"OffsetFetchRequest.Topics":                               true,
	"OffsetFetchRequestGroup.Topics":                          true,
	"DescribeConfigsResource.ConfigurationKeys":               true,
	"DescribeConfigsRequestResource.ConfigNames":              true,
	"DescribeLogDirsRequest.Topics":                           true,
	"CreatePartitionsTopic.Assignments":                       true,
	"CreatePartitionsRequestTopic.Assignment":                 true,
	"ElectLeadersRequest.TopicPartitions":                     true,
	"ElectLeadersRequest.Topics":                              true,
	"ReassignablePartition.Replicas":                          true,
	"AlterPartitionAssignmentsRequestTopicPartition.Replicas": true,
	"ListPartitionReassignmentsRequest.Topics":                true,
	"ConsumerGroupHeartbeatRequest.SubscribedTopicNames":      true,
	"ConsumerGroupHeartbeatRequest.TopicPartitions":           true,
	"ConsumerGroupHeartbeatRequest.Topics":                    true,
	"ConsumerGroupDescribedGroup.History":                     true,
	"DescribedGroup.History":                                  true,
}

// neverEmpty lists the slices whose empty form is the absent one.
var neverEmpty = map[string]bool{
	"ProduceResponse.NodeEndpoints":         true,
	"FetchResponse.NodeEndpoints":           true,
	"ApiVersionsResponse.SupportedFeatures": true,
	"ApiVersionsResponse.FinalizedFeatures": true,
}

// message fills the struct that m points to.
func (f *filler) message(m any) { f.fill(reflect.ValueOf(m).Elem(), "") }

func (f *filler) fill(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name != "Version" && name != "UnknownTags" && name != "RecordsSize" && v.Field(i).CanSet() {
				f.fill(v.Field(i), v.Type().Name()+"."+name)
			}
		}
	case reflect.Pointer:
		if f.rng.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), path)
		} else {
			v.SetZero()
		}
	case reflect.Slice:
		f.fillSlice(v, path)
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), path)
		}
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.rng.Uint64()) >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(f.rng.Uint64() & (1<<v.Type().Bits() - 1))
	default:
		panic(fmt.Sprintf("no filling for %s (%s)", v.Type(), path))
	}
}

func (f *filler) fillSlice(v reflect.Value, path string) {
	n := f.rng.IntN(4)
	if mayBeNil[path] && n == 0 {
		v.SetZero()
		return
	}
	n = f.rng.IntN(4)
	if neverEmpty[path] {
		n++
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		n *= 50
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		f.fill(v.Index(i), path)
	}
}

// text gives a string that is mostly short, sometimes above 127 bytes, where the
// length of its compact form takes two bytes.
func (f *filler) text() string {
	n := f.rng.IntN(20)
	if f.rng.IntN(20) == 0 {
		n = 120 + f.rng.IntN(20)
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte('a' + f.rng.IntN(26))
	}
	return string(p)
}

// eachVersion runs fn as a subtest for each API and version.
func eachVersion(t *testing.T, fn func(t *testing.T, a API, version int16)) {
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			t.Run(fmt.Sprintf("%s/%d", a.Name, v), func(t *testing.T) { fn(t, a, v) })
		}
	}
}

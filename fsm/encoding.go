package fsm

import "github.com/weirmq/weir/wire/codec"

// Each command lists its fields once, in the order of its encoding, version 1.
// Numbers that are small in practice are varints. A field is never added here:
// that takes a new version beside this one.

// Sizes of array elements in memory, for the codec's budget.
const (
	sizeID             = 4
	sizeTopicID        = 16
	sizeTopicPartition = 20
	sizeString         = 16
	sizeMember         = 16
	sizeISRChange      = 64
	sizeLeaderChange   = 64
	sizeNewPartition   = 56
	sizeReplicaChange  = 112
)

func codeBroker(x *codec.Coder, id *BrokerID) { x.Varint((*int32)(id)) }

func codeBrokerEpoch(x *codec.Coder, e *BrokerEpoch) { x.Varlong((*int64)(e)) }

func codeBrokers(x *codec.Coder, ids *[]BrokerID) { codec.ArrayOf(x, ids, sizeID, codeBroker) }

func codeTopicID(x *codec.Coder, id *TopicID) { x.UUID((*[16]byte)(id)) }

func codeEndpoint(x *codec.Coder, e *Endpoint) {
	x.String(&e.Host)
	x.Varint(&e.Port)
}

func codeConfig(x *codec.Coder, kv *[2]string) {
	x.String(&kv[0])
	x.String(&kv[1])
}

func codeTP(x *codec.Coder, tp *TopicPartition) {
	codeTopicID(x, &tp.Topic)
	x.Varint(&tp.Partition)
}

func (c *InitCluster) code(x *codec.Coder) { x.String(&c.ClusterID) }

func (c *RegisterBroker) code(x *codec.Coder) {
	codeBroker(x, &c.ID)
	x.UUID(&c.Folder)
	x.UUID(&c.Process)
	x.String(&c.BootID)
	codeEndpoint(x, &c.Client)
	codeEndpoint(x, &c.Peer)
	x.String(&c.Rack)
	codeBrokerEpoch(x, &c.PrevCleanEpoch)
	codeBrokerEpoch(x, &c.Replaces)
	x.Bool(&c.SessionLive)
}

func (c *FenceBroker) code(x *codec.Coder) {
	codeBroker(x, &c.ID)
	codeBrokerEpoch(x, &c.Epoch)
}

func (c *UnfenceBroker) code(x *codec.Coder) {
	codeBroker(x, &c.ID)
	codeBrokerEpoch(x, &c.Epoch)
}

func (c *StopBroker) code(x *codec.Coder) {
	codeBroker(x, &c.ID)
	codeBrokerEpoch(x, &c.Epoch)
}

func (c *ChangeLeaders) code(x *codec.Coder) {
	codec.ArrayOf(x, &c.Items, sizeLeaderChange, func(x *codec.Coder, i *LeaderChange) {
		codeTP(x, &i.TP)
		x.Varint((*int32)(&i.LeaderEpoch))
		x.Varint((*int32)(&i.PartitionEpoch))
		codeBroker(x, &i.Leader)
		codeBrokers(x, &i.ISR)
		x.Bool(&i.Recovering)
	})
}

func (c *ChangeISR) code(x *codec.Coder) {
	codeBroker(x, &c.Proposer)
	codeBrokerEpoch(x, &c.BrokerEpoch)
	codec.ArrayOf(x, &c.Items, sizeISRChange, func(x *codec.Coder, i *ISRChange) {
		codeTP(x, &i.TP)
		x.Varint((*int32)(&i.LeaderEpoch))
		x.Varint((*int32)(&i.PartitionEpoch))
		codec.ArrayOf(x, &i.ISR, sizeMember, func(x *codec.Coder, m *Member) {
			codeBroker(x, &m.ID)
			codeBrokerEpoch(x, &m.Epoch)
		})
		x.Uint8((*uint8)(&i.Durability))
		x.Bool(&i.Confirms)
	})
}

func (c *CreateTopic) code(x *codec.Coder) {
	codeTopicID(x, &c.ID)
	x.String(&c.Name)
	codec.ArrayOf(x, &c.Configs, 2*sizeString, codeConfig)
	codec.ArrayOf(x, &c.Partitions, sizeNewPartition, codeNewPartition)
}

func (c *DeleteTopic) code(x *codec.Coder) { codeTopicID(x, &c.ID) }

func (c *ConfirmDeleted) code(x *codec.Coder) {
	codeBroker(x, &c.Broker)
	codeBrokerEpoch(x, &c.BrokerEpoch)
	codec.ArrayOf(x, &c.Topics, sizeTopicID, codeTopicID)
}

func (c *AllocateProducerIDs) code(x *codec.Coder) {
	codeBroker(x, &c.Broker)
	codeBrokerEpoch(x, &c.BrokerEpoch)
	x.Varlong(&c.First)
	x.Varint(&c.Count)
}

func (c *ReportDamaged) code(x *codec.Coder) {
	codeBroker(x, &c.Broker)
	codeBrokerEpoch(x, &c.BrokerEpoch)
	codec.ArrayOf(x, &c.Items, sizeTopicPartition, codeTP)
}

func (c *AdmitNode) code(x *codec.Coder) {
	codeBroker(x, &c.ID)
	x.UUID(&c.Folder)
	codeEndpoint(x, &c.Peer)
}

func (c *RemoveNode) code(x *codec.Coder) {
	codeBroker(x, &c.ID)
	x.UUID(&c.Folder)
	codeBrokerEpoch(x, &c.Epoch)
}

func (c *GiveUpBroker) code(x *codec.Coder) {
	codeBroker(x, &c.ID)
	codeBrokerEpoch(x, &c.Epoch)
}

func (InitCluster) kind() kind              { return kindInitCluster }
func (c InitCluster) encode(w *codec.Coder) { c.code(w) }

func (RegisterBroker) kind() kind              { return kindRegisterBroker }
func (c RegisterBroker) encode(w *codec.Coder) { c.code(w) }

func (FenceBroker) kind() kind              { return kindFenceBroker }
func (c FenceBroker) encode(w *codec.Coder) { c.code(w) }

func (UnfenceBroker) kind() kind              { return kindUnfenceBroker }
func (c UnfenceBroker) encode(w *codec.Coder) { c.code(w) }

func (StopBroker) kind() kind              { return kindStopBroker }
func (c StopBroker) encode(w *codec.Coder) { c.code(w) }

func (ChangeLeaders) kind() kind              { return kindChangeLeaders }
func (c ChangeLeaders) encode(w *codec.Coder) { c.code(w) }

func (ChangeISR) kind() kind              { return kindChangeISR }
func (c ChangeISR) encode(w *codec.Coder) { c.code(w) }

func (CreateTopic) kind() kind              { return kindCreateTopic }
func (c CreateTopic) encode(w *codec.Coder) { c.code(w) }

func (DeleteTopic) kind() kind              { return kindDeleteTopic }
func (c DeleteTopic) encode(w *codec.Coder) { c.code(w) }

func (ConfirmDeleted) kind() kind              { return kindConfirmDeleted }
func (c ConfirmDeleted) encode(w *codec.Coder) { c.code(w) }

func (AllocateProducerIDs) kind() kind              { return kindAllocateProducerIDs }
func (c AllocateProducerIDs) encode(w *codec.Coder) { c.code(w) }

func (ReportDamaged) kind() kind              { return kindReportDamaged }
func (c ReportDamaged) encode(w *codec.Coder) { c.code(w) }

func (AdmitNode) kind() kind              { return kindAdmitNode }
func (c AdmitNode) encode(w *codec.Coder) { c.code(w) }

func (RemoveNode) kind() kind              { return kindRemoveNode }
func (c RemoveNode) encode(w *codec.Coder) { c.code(w) }

func (GiveUpBroker) kind() kind              { return kindGiveUpBroker }
func (c GiveUpBroker) encode(w *codec.Coder) { c.code(w) }

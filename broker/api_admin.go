package broker

import (
	"context"
	"iter"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// operations is what the handlers of the APIs of operators see of the node beside
// what backend has for all.
type operations struct {
	cluster clusterAdmin
	// sync waits until the Image holds what the controller knows now.
	sync func(context.Context) error
	// hosted returns the replica hosted here, or a nil interface.
	hosted func(fsm.TopicPartition) administered
	// folder is the state of the data folder.
	folder func() folderState
	// config is what the node was started with.
	config Config
}

// clusterAdmin is the part of the controller that operators may use: *controller.Node.
type clusterAdmin interface {
	AlterTopics(ctx context.Context, changes []controller.TopicAlteration) ([]controller.TopicResult, error)
	AddPartitions(ctx context.Context, topics []controller.MorePartitions) ([]controller.TopicResult, error)
	ElectLeaders(ctx context.Context, kind controller.ElectionKind, tps []fsm.TopicPartition) ([]controller.ElectionResult, error)
	Quorum(ctx context.Context) (controller.Quorum, error)
	Reassign(ctx context.Context, moves []controller.Move, resize bool) ([]controller.Outcome, error)
	AddVoter(ctx context.Context, id fsm.BrokerID, folder [16]byte) (controller.Outcome, error)
	RemoveVoter(ctx context.Context, id fsm.BrokerID, folder [16]byte) (controller.Outcome, error)
	RemoveNode(ctx context.Context, id fsm.BrokerID) (controller.Outcome, error)
}

// imageWith is an Image to look topics up in by name, for requests that change them:
// when one is missing, the newest that the controller has, since it may have been
// created through another node a moment ago. Without a controller it is the present one.
func (s *server) imageWith(ctx context.Context, names iter.Seq[string]) *fsm.Image {
	im := s.backend.image()
	for name := range names {
		if _, ok := im.TopicByName(name); !ok {
			if err := s.backend.ops.sync(ctx); err != nil {
				return im // what follows needs the controller, too, and reports it
			}
			return s.backend.image()
		}
	}
	return im
}

// administered is a partition as these handlers see it: *Partition, or a test's.
type administered interface {
	// Trim moves the log start up; wait returns when all live replicas have followed.
	Trim(to batch.Offset) (wait func(context.Context) (batch.Offset, error), err error)
	EpochEnd(current, asked batch.Epoch) (EpochEnd, error)
	Producers() ([]storage.Producer, error)
}

// folderState is the data folder at one moment.
type folderState struct {
	path          string
	err           error  // set when the folder is offline
	total, usable uint64 // bytes of its volume, and those free; 0, 0 when unknown
	logs          []logState
}

// logState is one log in it.
type logState struct {
	topic     string
	partition int32
	size      int64
	lag       batch.Offset // how far its end is below the high watermark that is known
}

// find is the replica of a partition here, or says why there is none.
func (o *operations) find(im *fsm.Image, tp fsm.TopicPartition) (administered, error) {
	if p := o.hosted(tp); p != nil {
		return p, nil
	}
	if _, ok := im.Partition(tp); ok {
		return nil, errNotLeader
	}
	return nil, errUnknownPartition
}

// messageOf is the text that goes with an error's code; none for no error.
func messageOf(err error) *string {
	if err == nil {
		return nil
	}
	return optional(wire.ErrorText(err.Error()))
}

// outcomeError is the controller's answer as an error; err is that there is none.
func outcomeError(o controller.Outcome, err error) error {
	if err != nil || o.Err == wire.None {
		return err
	}
	return refused(o.Err, "%s", o.Msg)
}

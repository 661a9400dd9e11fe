package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

func handleDeleteRecords(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DeleteRecordsRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		d := deleteRecords{srv: c.srv, im: c.srv.backend.image(), resp: &wire.DeleteRecordsResponse{}}
		d.run(ctx, req)
		return Reply{Body: d.resp}
	}
}

// deleteRecords is one DeleteRecords request. All partitions are begun before any
// is waited for, so that a slow replica of one does not cost the others their time.
type deleteRecords struct {
	srv  *server
	im   *fsm.Image
	resp *wire.DeleteRecordsResponse
	jobs []trimJob
}

// trimJob is one partition of the request.
type trimJob struct {
	tp   fsm.TopicPartition
	to   batch.Offset
	out  *wire.DeleteRecordsPartitionResult
	err  error // why there is nothing to begin
	wait func(context.Context) (batch.Offset, error)
}

func (d *deleteRecords) run(ctx context.Context, req *wire.DeleteRecordsRequest) {
	d.resp.Topics = make([]wire.DeleteRecordsTopicResult, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &d.resp.Topics[i]
		out.Name = in.Name
		out.Partitions = make([]wire.DeleteRecordsPartitionResult, len(in.Partitions))
		t, err := topicOf(d.im, 0, 1, in.Name, [16]byte{})
		for j := range in.Partitions {
			out.Partitions[j] = wire.DeleteRecordsPartitionResult{PartitionIndex: in.Partitions[j].PartitionIndex, LowWatermark: -1}
			job := trimJob{to: in.Partitions[j].Offset, out: &out.Partitions[j], err: err}
			if t != nil && job.err == nil {
				job.err = d.srv.mayTrim(t)
			}
			if t != nil {
				job.tp = fsm.TopicPartition{Topic: t.ID, Partition: in.Partitions[j].PartitionIndex}
			}
			d.jobs = append(d.jobs, job)
		}
	}
	errs := sideBySide(len(d.jobs), func(i int) error { return d.begin(&d.jobs[i]) })
	for i := range d.jobs {
		job, err := &d.jobs[i], errs[i]
		if err == nil {
			var low batch.Offset
			if low, err = job.wait(ctx); err == nil {
				job.out.LowWatermark = low
			}
		}
		job.out.ErrorCode = d.srv.code(err)
	}
}

// mayTrim refuses to delete old records of a topic that keeps the newest of each key,
// however old.
func (s *server) mayTrim(t *fsm.Topic) error {
	if keepAll, compact := s.config.Cleanup.of(t); keepAll && compact {
		return refused(wire.PolicyViolation, "%s is compacted and its cleanup.policy has no delete", t.Name)
	}
	return nil
}

func (d *deleteRecords) begin(job *trimJob) error {
	if job.err != nil {
		return job.err
	}
	p, err := d.srv.backend.ops.find(d.im, job.tp)
	if err != nil {
		return err
	}
	job.wait, err = p.Trim(job.to)
	return err
}

package broker

import (
	"context"
	"math"
	"slices"

	"github.com/weirmq/weir/wire"
)

func handleDescribeLogDirs(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DescribeLogDirsRequest)
	return func(context.Context) Reply {
		return Reply{Body: c.srv.describeLogDirs(req)}
	}
}

// describeLogDirs tells of the one data folder that a node has.
func (s *server) describeLogDirs(req *wire.DescribeLogDirsRequest) *wire.DescribeLogDirsResponse {
	folder := s.backend.ops.folder()
	dir := wire.DefaultDescribeLogDirsResult()
	dir.LogDir = folder.path
	if folder.total > 0 {
		dir.TotalBytes, dir.UsableBytes = int64(min(folder.total, math.MaxInt64)), int64(min(folder.usable, math.MaxInt64))
	}
	if folder.err != nil {
		dir.ErrorCode = s.code(folder.err)
		return &wire.DescribeLogDirsResponse{Results: []wire.DescribeLogDirsResult{dir}}
	}
	for _, l := range folder.logs {
		if !asksForLog(req, l) {
			continue
		}
		if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Name != l.topic {
			dir.Topics = append(dir.Topics, wire.DescribeLogDirsTopic{Name: l.topic})
		}
		t := &dir.Topics[len(dir.Topics)-1]
		t.Partitions = append(t.Partitions, wire.DescribeLogDirsPartition{PartitionIndex: l.partition, PartitionSize: l.size, OffsetLag: int64(l.lag)})
	}
	return &wire.DescribeLogDirsResponse{Results: []wire.DescribeLogDirsResult{dir}}
}

// asksForLog tells whether a request is about a log.
func asksForLog(req *wire.DescribeLogDirsRequest, l logState) bool {
	if req.Topics == nil {
		return true
	}
	return slices.ContainsFunc(req.Topics, func(t wire.DescribableLogDirTopic) bool {
		return t.Topic == l.topic && slices.Contains(t.Partitions, l.partition)
	})
}

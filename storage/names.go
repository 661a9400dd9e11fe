package storage

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirmq/weir/wire/batch"
)

// Names in a data folder and in a partition folder. Kafka's, except cleanStopFile.
const (
	lockFile      = ".lock"
	cleanStopFile = ".clean-shutdown"
	recoveryFile  = "recovery-point-offset-checkpoint"
	hwFile        = "replication-offset-checkpoint"
	startFile     = "log-start-offset-checkpoint"
	cleanFile     = "cleaner-offset-checkpoint"

	metadataFile = "partition.metadata"
	epochFile    = "leader-epoch-checkpoint"

	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	snapshotSuffix = ".snapshot"
	deletedSuffix  = ".deleted" // a file set aside, to be removed
	tmpSuffix      = ".tmp"     // a file that was not finished
	cleanedSuffix  = ".cleaned" // a file of a cleaned segment that is not to be yet
	swapSuffix     = ".swap"    // a file of one that is to take its place

	newSuffix    = ".new"    // a partition folder that was not finished
	deleteSuffix = "-delete" // a partition folder to be removed
	straySuffix  = "-stray"  // a partition folder set aside and kept

	maxTopicLen = 249
	maxNameLen  = 255
)

// ID is a topic's id.
type ID [16]byte

// String is the id as Kafka prints it: base64 for URLs, without padding.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseID(s string) (ID, error) {
	p, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(p) != len(ID{}) {
		return ID{}, fmt.Errorf("topic id %q is not 16 bytes in base64", s)
	}
	return ID(p), nil
}

// partition names a partition as folders do.
type partition struct {
	topic string
	id    int32
}

func (p partition) String() string { return p.topic + "-" + strconv.Itoa(int(p.id)) }

// parsePartition reads a folder's name; false when it is not a partition's.
func parsePartition(name string) (partition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 || !validTopic(name[:i]) {
		return partition{}, false
	}
	digits := name[i+1:]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return partition{}, false
	}
	return partition{name[:i], int32(n)}, true
}

// validTopic keeps a client's name from reaching any path but its own folder's.
func validTopic(name string) bool {
	if name == "" || len(name) > maxTopicLen || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// asideName is the name under which a partition's folder is set aside: Kafka's
// form, topic-partition.hex-suffix, cut in front to what a file system takes.
// The hex digits are those of the topic id, plus n to tell strays apart.
func asideName(p partition, id ID, n int, suffix string) string {
	tail := "." + hex.EncodeToString(id[:])
	if n > 0 {
		tail += strconv.Itoa(n)
	}
	tail += suffix
	head := p.String()
	return head[:min(len(head), maxNameLen-len(tail))] + tail
}

// fileName is the name of a segment's file.
func fileName(base batch.Offset, suffix string) string {
	return fmt.Sprintf("%020d%s", base, suffix)
}

// parseFileName reads such a name; false when it has another suffix.
func parseFileName(name, suffix string) (batch.Offset, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	return batch.Offset(n), true
}

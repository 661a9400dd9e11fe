package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// WriteFileAtomic replaces a file's content so that a crash leaves the old or
// the new one: temporary file, fsync, rename, fsync of the folder. When it
// returns nil the new content is durable.
func WriteFileAtomic(fsys vfs.FS, path string, data []byte) error {
	if err := writeTmp(fsys, path, data, vfs.File.Sync); err != nil {
		return err
	}
	if err := fsys.Rename(path+tmpSuffix, path); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync folder of %s: %w", path, err)
	}
	return nil
}

// writeTmp writes the temporary file that will replace path; finish syncs it. After
// an error nothing of it is left, as far as the disk allows.
func writeTmp(fsys vfs.FS, path string, data []byte, finish func(vfs.File) error) error {
	tmp := path + tmpSuffix
	f, err := fsys.Open(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = finish(f)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", tmp, err), removeIfThere(fsys, tmp))
	}
	return nil
}

// Kafka's checkpoint files are text: a version, a count, and that many lines.
const checkpointVersion = 0

// encodeLines writes a checkpoint file of the given lines.
func encodeLines(lines []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n%d\n", checkpointVersion, len(lines))
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// checkpointLine is a line of one of the four checkpoint files of a data folder.
func checkpointLine(p partition, o batch.Offset) string {
	return fmt.Sprintf("%s %d %d", p.topic, p.id, o)
}

// parseLines reads a checkpoint file and returns its lines split in fields.
func parseLines(data []byte, fields int) ([][]string, error) {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) < 2 || strings.TrimSpace(lines[0]) != strconv.Itoa(checkpointVersion) {
		return nil, errors.New("it does not begin with version 0 and a count")
	}
	count, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || count != len(lines)-2 {
		return nil, fmt.Errorf("it says it has %q entries and has %d", lines[1], len(lines)-2)
	}
	out := make([][]string, 0, count)
	for _, line := range lines[2:] {
		parts := strings.Fields(line)
		if len(parts) != fields {
			return nil, fmt.Errorf("line %q does not have %d fields", line, fields)
		}
		out = append(out, parts)
	}
	return out, nil
}

// offsets are what one of the four checkpoint files of a data folder says.
type offsets map[partition]batch.Offset

// readOffsets reads a checkpoint file; a missing one says nothing.
func readOffsets(fsys vfs.FS, path string) (offsets, error) {
	data, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return offsets{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	out, err := parseOffsets(data)
	if err != nil {
		return nil, &CorruptError{Path: path, Msg: "not a checkpoint file", Err: err}
	}
	return out, nil
}

func parseOffsets(data []byte) (offsets, error) {
	lines, err := parseLines(data, 3)
	if err != nil {
		return nil, err
	}
	out := make(offsets, len(lines))
	for _, parts := range lines {
		p, ok := parsePartition(parts[0] + "-" + parts[1])
		offset, err := strconv.ParseInt(parts[2], 10, 64)
		if !ok || err != nil || offset < 0 {
			return nil, fmt.Errorf("line %q is not topic, partition and offset", strings.Join(parts, " "))
		}
		out[p] = batch.Offset(offset)
	}
	return out, nil
}

// cleanStop is the content of the clean-shutdown file, in Kafka's form.
type cleanStop struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

func encodeCleanStop(s CleanStop) ([]byte, error) {
	return json.Marshal(cleanStop{Version: checkpointVersion, BrokerEpoch: s.BrokerEpoch})
}

func parseCleanStop(data []byte) (CleanStop, bool) {
	s := cleanStop{Version: -1, BrokerEpoch: -1}
	if err := json.Unmarshal(data, &s); err != nil || s.Version != checkpointVersion || s.BrokerEpoch < 0 {
		return CleanStop{}, false
	}
	return CleanStop{BrokerEpoch: s.BrokerEpoch}, true
}

// encodeMetadata is a partition.metadata file.
func encodeMetadata(id ID) []byte {
	return fmt.Appendf(nil, "version: %d\ntopic_id: %s", checkpointVersion, id)
}

func parseMetadata(data []byte) (ID, error) {
	version, topic, ok := strings.Cut(strings.TrimSpace(string(data)), "\n")
	id, found := strings.CutPrefix(strings.TrimSpace(topic), "topic_id:")
	if !ok || !found || strings.TrimSpace(version) != "version: 0" {
		return ID{}, errors.New("it does not hold version 0 and a topic id")
	}
	return parseID(strings.TrimSpace(id))
}

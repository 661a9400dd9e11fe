package broker

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
)

const (
	metaFile    = "weir.meta"
	metaVersion = 1
	metaMaxSize = 4096 // a file that is larger is not ours
)

// meta is the content of weir.meta: who this folder belongs to, and how much of
// the metadata log its partition folders reflect.
//
// The file is text, one key=value a line; the last line is the CRC-32C of all
// before it.
type meta struct {
	identity controller.Identity
	// reconciled is the Image index that the partition folders were last made to
	// agree with. A node whose Image is older has lost metadata and must not judge
	// the folders by it.
	reconciled uint64
}

// readMeta reads the folder's weir.meta; found is false when there is none.
func readMeta(fsys vfs.FS, dir string) (m meta, found bool, err error) {
	path := filepath.Join(dir, metaFile)
	text, err := readSmallFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return meta{}, false, nil
	}
	if err != nil {
		return meta{}, false, fmt.Errorf("read %s: %w: check that the folder belongs to the user that runs the node", path, err)
	}
	m, err = parseMeta(text)
	if err != nil {
		return meta{}, false, fmt.Errorf("%s is damaged (%w): restore it from a copy, or start with another data folder", path, err)
	}
	return m, true, nil
}

func readSmallFile(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > metaMaxSize {
		return nil, fmt.Errorf("it holds %d bytes, more than %d", size, metaMaxSize)
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil && size > 0 {
		return nil, err
	}
	return text, nil
}

// write makes m the folder's weir.meta, surely on disk when it returns.
func (m meta) write(fsys vfs.FS, dir string) error {
	return storage.WriteFileAtomic(fsys, filepath.Join(dir, metaFile), m.format())
}

func (m meta) format() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "version=%d\ncluster.id=%s\nnode.id=%d\nfolder.id=%s\nimage.index=%d\n",
		metaVersion, m.identity.ClusterID, m.identity.NodeID, hex.EncodeToString(m.identity.Folder[:]), m.reconciled)
	fmt.Fprintf(&b, "crc=%08x\n", metaSum(b.Bytes()))
	return b.Bytes()
}

func metaSum(text []byte) uint32 { return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)) }

func parseMeta(text []byte) (meta, error) {
	body, last, found := bytes.Cut(text, []byte("crc="))
	if !found {
		return meta{}, errors.New("it has no checksum")
	}
	if want := fmt.Sprintf("%08x", metaSum(body)); want != strings.TrimSpace(string(last)) {
		return meta{}, fmt.Errorf("its checksum is %s, not %s", strings.TrimSpace(string(last)), want)
	}
	values := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		values[key] = value
	}
	if v := values["version"]; v != strconv.Itoa(metaVersion) {
		return meta{}, fmt.Errorf("its format version is %q and this program reads %d", v, metaVersion)
	}
	return metaOf(values)
}

func metaOf(values map[string]string) (meta, error) {
	id, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil {
		return meta{}, fmt.Errorf("node.id: %w", err)
	}
	folder, err := hex.DecodeString(values["folder.id"])
	if err != nil || len(folder) != 16 {
		return meta{}, fmt.Errorf("folder.id %q is not 32 hex digits", values["folder.id"])
	}
	index, err := strconv.ParseUint(values["image.index"], 10, 64)
	if err != nil {
		return meta{}, fmt.Errorf("image.index: %w", err)
	}
	m := meta{identity: controller.Identity{ClusterID: values["cluster.id"], NodeID: fsm.BrokerID(id)}, reconciled: index}
	copy(m.identity.Folder[:], folder)
	return m, nil
}

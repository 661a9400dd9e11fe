package broker

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/storage/vfs"
)

func testMeta() meta {
	return meta{
		identity:   controller.Identity{ClusterID: "c1", NodeID: 3, Folder: [16]byte{0xab, 1, 2, 15: 0xff}},
		reconciled: 4711,
	}
}

func TestMetaFormat(t *testing.T) {
	const want = "version=1\ncluster.id=c1\nnode.id=3\nfolder.id=ab0102000000000000000000000000ff\nimage.index=4711\ncrc=923171a1\n"
	if got := string(testMeta().format()); got != want {
		t.Errorf("weir.meta is\n%q\nwant\n%q\n(a change of the format needs a new version)", got, want)
	}
}

func TestMetaRoundTrip(t *testing.T) {
	fsys := vfs.NewMem(1)
	if err := fsys.MkdirAll("d", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, found, err := readMeta(fsys, "d"); found || err != nil {
		t.Fatalf("readMeta of an empty folder = found %v, error %v", found, err)
	}
	if err := testMeta().write(fsys, "d"); err != nil {
		t.Fatal(err)
	}
	got, found, err := readMeta(fsys, "d")
	if err != nil || !found || got != testMeta() {
		t.Errorf("readMeta = %+v, %v, %v, want %+v", got, found, err, testMeta())
	}
}

func TestMetaDamage(t *testing.T) {
	whole := testMeta().format()
	for i := range whole[:len(whole)-1] {
		broken := bytes.Clone(whole)
		broken[i] ^= 0x04
		if m, err := parseMeta(broken); err == nil && m != testMeta() {
			t.Errorf("a flipped bit in byte %d was taken for %+v", i, m)
		}
		if _, err := parseMeta(whole[:i]); err == nil && i < len(whole)-1 {
			t.Errorf("the first %d bytes were taken for a whole file", i)
		}
	}
	fsys := vfs.NewMem(1)
	f, err := fsys.Open(metaFile, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("version=9\ncrc=0\n")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readMeta(fsys, "."); err == nil || !strings.Contains(err.Error(), "restore it from a copy") {
		t.Errorf("readMeta of a damaged file = %v, want an error that says what to do", err)
	}
}

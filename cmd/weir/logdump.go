package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/weirmq/weir/cmd/weir/client"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/compress"
)

// maxDumpInflated bounds what one batch may decompress to.
const maxDumpInflated = 256 << 20

func logCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "log", Usage: "look into partition folders on disk",
		Subcommands: []*cli.Command{{
			Name: "dump", Usage: "print the batches of a partition folder or of .log files", ArgsUsage: "FOLDER|FILE…",
			Description: "Reads only. Each batch is checked (length, magic, CRC, offsets in order); with a folder its indexes,\nepoch file and snapshots are verified too. The first fault is reported and the exit code is 1.",
			Flags:       []cli.Flag{&cli.BoolFlag{Name: "records", Aliases: []string{"r"}, Usage: "print each record too"}},
			Action: func(c *cli.Context) error {
				if c.NArg() == 0 {
					return &client.Error{Code: client.ExitUsage, Text: "log dump needs a partition folder or .log files: weir log dump DIR"}
				}
				for _, path := range c.Args().Slice() {
					if err := dumpPath(stdout, path, c.Bool("records")); err != nil {
						return &client.Error{Code: exitOf(err), Text: fmt.Sprintf("cannot dump %s: %v", path, err)}
					}
				}
				return nil
			},
		}},
	}
}

func exitOf(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return client.ExitNotFound
	}
	return client.ExitFailed
}

func dumpPath(w io.Writer, path string, records bool) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return dumpSegment(w, path, records)
	}
	segments, err := filepath.Glob(filepath.Join(path, "*.log"))
	if err != nil {
		return err
	}
	slices.Sort(segments) // twenty digits: the order of names is the order of offsets
	for _, s := range segments {
		if err := dumpSegment(w, s, records); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(path, "partition.metadata")); err != nil {
		return fmt.Errorf("%s holds no partition.metadata: it is not a partition folder: %w", path, err)
	}
	if err := storage.Check(vfs.OS(), path); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: %d segments, all checks passed\n", path, len(segments))
	return err
}

// dumpSegment prints the batches of one .log file. Segments are at most 2 GiB
// and are read a batch at a time.
func dumpSegment(w io.Writer, path string, records bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintln(w, path)
	var buf []byte
	head := make([]byte, batch.HeaderSize)
	for pos := int64(0); ; {
		n, err := io.ReadFull(f, head)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("position %d: %d bytes of a batch header: %w", pos, n, err)
		}
		size, err := batch.SizeOf(head)
		if err != nil {
			return fmt.Errorf("position %d: %w", pos, err)
		}
		if st, err := f.Stat(); err != nil || int64(size) > st.Size()-pos {
			return fmt.Errorf("position %d: a batch of %d bytes does not fit in the file: %w", pos, size, errors.Join(err, io.ErrUnexpectedEOF))
		}
		buf = append(slices.Grow(buf[:0], size), head...)[:size]
		if _, err := io.ReadFull(f, buf[batch.HeaderSize:]); err != nil {
			return fmt.Errorf("position %d: a batch of %d bytes: %w", pos, size, err)
		}
		b, _, err := batch.Next(buf)
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return fmt.Errorf("position %d: %w", pos, err)
		}
		printBatch(w, pos, b)
		if records {
			if err := printRecords(w, b); err != nil {
				return fmt.Errorf("position %d: %w", pos, err)
			}
		}
		pos += int64(size)
	}
}

func printBatch(w io.Writer, pos int64, b batch.Batch) {
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	codec := fmt.Sprint(b.Codec())
	if int(b.Codec()) < len(codecs) {
		codec = codecs[b.Codec()]
	}
	var flags []string
	for name, set := range map[string]bool{"transactional": b.Transactional(), "control": b.Control(), "append-time": b.LogAppendTime()} {
		if set {
			flags = append(flags, name)
		}
	}
	slices.Sort(flags)
	fmt.Fprintf(w, "  position %d offsets %d-%d records %d size %d epoch %d max-timestamp %d codec %s producer %d/%d sequence %d-%d %s\n",
		pos, b.Base(), b.Last(), b.Count(), b.Size(), b.Epoch(), b.MaxTimestamp(), codec, b.ProducerID(), b.ProducerEpoch(), b.FirstSequence(), b.LastSequence(), strings.Join(flags, " "))
}

func printRecords(w io.Writer, b batch.Batch) error {
	payload, err := compress.Inflate(compress.Codec(b.Codec()), nil, b.Payload(), maxDumpInflated)
	if err != nil {
		return err
	}
	for r, err := range b.Records(payload) {
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "    offset %d timestamp %d key %s value %s\n", r.Offset, r.Timestamp, quote(r.Key), quote(r.Value))
	}
	return nil
}

// quote shows bytes safely on a terminal; a null is told from an empty string.
func quote(p []byte) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprintf("%q", p)
}

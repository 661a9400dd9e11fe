// Package wal keeps Raft's log and its stable values in files that are only appended to.
//
// # Responsibility
//
// It implements raft.LogStore and raft.StableStore. What it opens is what was stored, or it does
// not open and says why (DamageError). Each change is one write and one sync. It has no deadline
// and retries nothing: package controller puts that around it.
//
// # Data flow
//
//	StoreLogs, Set, DeleteRange ─ turn ─ room ─ block ─ write, sync ─ state
//	GetLog ─ place of the entry ─ one read ─ the entry's checksum
//	Open ─ every byte of every segment ─ replay ─ state
//	keeper ─ a spare segment ahead, dead segments removed
//
// # Files
//
// The log is a sequence of segments, NNNNNNNNNNNNNNNN.wal with the number in decimal, each of a
// fixed size. A segment is made under another name, filled with zeros and synced before it gets
// its own, so that appends overwrite blocks that the file has: a write needs no room, and its sync
// no journal of the file system. Numbers are big endian, checksums CRC-32C.
//
// A segment consists of sectors of 512 bytes, each with 508 bytes of content and a seal: a
// checksum of the content, of the log's identity, the segment's number, the sector's place in the
// segment, and its role (first of a block, further, head). A seal is never 0, so a sector of zeros is one
// that was never written, and there are only three kinds: sealed, empty, damaged.
//
// The first page (4 KiB) is the head. Its first sector holds the magic text with the version of the format
// (8), the identity of the log, made at random (16), the segment's number (8) and its size (8);
// the others are empty.
//
// Blocks follow, each from the beginning of a page on. The content of a block's sectors, one after
// another, is: kind (1), zero (3), length of the payload (4), number of the block (8), which is one
// more than that of the block before in whatever segment, index of the log's first entry (8) and of its last (8) after
// the block, both 0 for an empty log, and the payload:
//
//	entries  count (4), then for each its length (4) and the entry (entry.go). Those with the
//	         index of the first and above are replaced.
//	values   all stable values: count (4), then for each, by name, the length of its name (4), the
//	         name, its length (4) and the value
//	bounds   nothing: older entries are deleted
//	start    as values; the first of each segment, so that the segments before can be removed
//	end      nothing; the last of a segment that another goes on
//	close    nothing: written when the log is closed, so that the block before is known to be whole
//
// The rest of a block's last page is empty.
//
// # Invariants
//
//   - A block is synced before the next one begins, so only the last block of all can be torn.
//   - A torn block lacks sectors: they are empty. It is the last one, and is emptied before
//     anything else is written. Whatever else differs from what was written is damage.
//   - Each page belongs to one block. One that is lost, or has its former content, takes no block
//     with it but its own, which is missed, unless it is the last and the log was not closed after it.
//   - A log that ends elsewhere than in its last segment, lacks a segment, or lacks an entry
//     between the bounds, does not open.
//   - Entries find room before anything is written, or get ErrNoRoom. What is kept of the segment
//     in use when there is no spare one is for values and deletions.
//   - Entries that others replace go with the block that stores those, or not at all.
//
// Rejected: records of any length one after another with a mark of what is synced in the head (a second
// page written with each append), and blocks from sector to sector (a page that is lost takes several).
//
// # Goroutines and locks
//
// keeper is one; it ends with Close. turn is a token held by who writes, through the write and its
// sync; making is one held by who makes or removes segments. turn comes before making. Log.mu is a leaf.
//
// # Imports
//
// Of ours: storage/vfs.
package wal

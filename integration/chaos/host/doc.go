// Package host is the ground that a chaos run stands on: a cluster of real weir
// processes on separate hosts, and the means to hurt them from outside.
//
// # Hosts
//
// A host is a folder, addresses and at most one process. Beside those that a cluster is
// made of there may be a spare one, which joins when it starts. Two networks exist. Spaces
// gives every host a network namespace on one bridge, with the clients on the bridge;
// cuts are nftables rules and slow links a token bucket, so that the kernel's own TCP
// meets the fault. Loopback needs no privilege: each host's peer port stands behind a
// proxy that reads who dials from the preface, and holds bytes back where a link is
// cut, as packets that are lost and sent again. In front of every client port there is
// a Proxy in both networks, which delays, and swallows replies.
//
// With Spaces each host also has a disk of its own, an ext4 file system in an image:
// it can be full, it can be cut off in the middle of writing (FS_IOC_SHUTDOWN, which
// drops what was not synced), and the process sees a boot id of its own, so that it
// can tell a power failure from the death of a process. A Tainted folder (FUSE) passes
// all calls on and fails or stalls chosen ones. A Clock moves the wall clock of one
// process by patching that process's copy of the vDSO; the machine's clock stays.
//
// # Cleaning up
//
// Inside makes the process that runs everything the first one of its own PID, network
// and mount namespaces. When it ends, however it ends, the kernel ends its children
// and takes away bridges, rules, mounts and, with the last mount, loop devices. What
// is left is one folder, which the outer process removes, or the next run.
//
// # Goroutines and locks
//
// One per process that runs (reap), two and a listener's one per proxied connection,
// one per FUSE mount and one per call being served there. Every one ends with Close of
// its owner. All mutexes are leaves.
//
// It may import anything of ours; it imports nothing of ours.
package host

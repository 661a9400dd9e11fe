// Package cluster runs real weir processes on loopback for tests: it builds the
// binary (or takes the one named by WEIR_BIN), starts nodes with a data folder
// each, and kills, stops and restarts them by process id.
//
// Its tests do the main job of the product, whole: real text in, a leader
// killed with SIGKILL in the middle, the same bytes out, by the bundled CLI, by
// franz-go and, where it is installed, by kcat. Two more measure failovers: of one
// partition (TestFailover), and of many at a time (TestManyPartitions), in short
// without judging times; one moves replicas while nodes die (TestReassign), and one has a
// compacted topic written to while nodes are away and killed, and reads it from each
// (TestCompaction). Every process is a child of the test and dies with it.
package cluster

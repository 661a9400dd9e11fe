// Package mutants proves that the simulator sees what it is there for: it holds a
// table of deliberate faults in the product's source, one for each rule, and the
// simulator must find every one within a bounded number of seeds.
//
// A mutant is an edit (file, old text, new text) applied by `go test -overlay`, so
// product source holds no test switches and nothing in the tree changes. An edit
// whose old text is not in its file exactly once fails the ordinary test run:
// then the rule has moved, and the table has to follow it.
//
// `make mutants` runs them all (WEIR_MUTANTS=all; a name runs one). docs/mutants.md
// is the table in words; a test compares it with this one.
//
// Chaos is a second table, of faults that runs of scripts/chaos with real processes must
// find. `make chaos-mutants` runs them all (WEIR_CHAOS_MUTANTS); docs/reliability.md is
// the table in words.
package mutants

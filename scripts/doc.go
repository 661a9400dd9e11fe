// Package scripts holds the checks and helpers that keep the repository in shape.
//
// It has no product code. Its tests walk the module and fail when a package
// imports what the layering forbids (layers_test.go) or when a file breaks one
// of the mechanical rules of the house style (tidy_test.go). The shell scripts
// beside them start local clusters and drive the longer suites.
package scripts

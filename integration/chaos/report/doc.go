// Package report shows what package check found as one page that needs nothing else:
// no network, no other file.
//
// # Data flow
//
//	check.Report, Meta ──newPage──▶ page (all numbers placed, all texts made)
//	page ──page.html, style.css, script.js──▶ one HTML file
//
//	check.Fault… ──WriteFigures, WriteTable──▶ the table of what faults cost, alone
//
// The plots are one SVG, made here, so that the page is whole without its script;
// the script only adds the readout under the pointer. Everything in it is text to
// html/template, which escapes it.
//
// # Layout of the SVG
//
// From top to bottom: lanes with the faults, marks of anomalies, then the plots,
// one above the other on one axis of time. Faults shade all plots.
//
// # Goroutines and locks
//
// None. The package reads no clock and knows no files but those built into it.
//
// It imports integration/chaos/check and integration/chaos/history.
package report

package codec_test

import (
	"fmt"

	"github.com/weirmq/weir/wire/codec"
)

// member is a struct with one method that both reads and writes it.
type member struct {
	id     string
	topics []string
}

func (m *member) code(c *codec.Coder) {
	c.String(&m.id)
	c.Strings(&m.topics)
	c.Tags()
}

func Example() {
	w := codec.NewWriter(nil).Flexible(true)
	(&member{id: "m-1", topics: []string{"logs"}}).code(w)
	fmt.Printf("%x\n", w.Bytes())

	var m member
	r := codec.NewReader(w.Bytes(), codec.Budget(len(w.Bytes()))).Flexible(true)
	m.code(r)
	fmt.Println(m.id, m.topics, r.End())

	r = codec.NewReader([]byte{0x04, 'm'}, 1000).Flexible(true)
	m.code(r)
	fmt.Println(r.End())
	// Output:
	// 046d2d3102056c6f677300
	// m-1 [logs] <nil>
	// the input ends inside a field (at byte 1)
}

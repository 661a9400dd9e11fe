package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// noOperations is the schema's default for a set of authorized operations that
// was not asked for.
const noOperations int32 = -1 << 31

func codeCode(c *codec.Coder, v *Code)           { c.Int16((*int16)(v)) }
func codeOffset(c *codec.Coder, v *batch.Offset) { c.Int64((*int64)(v)) }
func codeEpoch(c *codec.Coder, v *batch.Epoch)   { c.Int32((*int32)(v)) }
func codeKey(c *codec.Coder, v *Key)             { c.Int16((*int16)(v)) }

// codeNullableStrings codes an array of strings that may be null, which is nil.
func codeNullableStrings(c *codec.Coder, v *[]string) {
	codec.NullableArrayOf(c, v, 16, (*codec.Coder).String)
}

// codeInt8s codes an array of int8 that may not be null.
func codeInt8s(c *codec.Coder, v *[]int8) { codec.ArrayOf(c, v, 1, (*codec.Coder).Int8) }

// codeTopicRef codes a topic's name or, in versions from idFrom on, its id.
func codeTopicRef(c *codec.Coder, name *string, id *[16]byte, idFrom int16) {
	if c.Version() >= idFrom {
		c.UUID(id)
	} else {
		c.String(name)
	}
}

// codeNameFrom codes a name that is nullable in versions from nullableFrom on.
func codeNameFrom(c *codec.Coder, name **string, nullableFrom int16) {
	if c.Version() >= nullableFrom {
		c.NullableString(name)
	} else {
		c.PresentString(name)
	}
}

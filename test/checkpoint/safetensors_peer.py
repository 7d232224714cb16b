"""The format's own implementation, for comparison: safetensors_peer.py read FILE | write FILE.

Both sides hold the same tensors: value i of a tensor is i, shape (2, 3, 4); read checks bytes, types, shapes and metadata of a
file that Lockstep wrote, write makes a file for Lockstep to check. Uses raw bytes, so that neither numpy nor torch is needed.
"""

import ctypes
import struct
import sys

import safetensors

SHAPE = [2, 3, 4]
COUNT = 24


def bf16(value):
    return struct.pack("<f", value)[2:]  # small whole numbers lose nothing


# dtype in the file: (name for serialize, bytes of a value)
TYPES = {
    "F64": ("float64", lambda v: struct.pack("<d", v)),
    "F32": ("float32", lambda v: struct.pack("<f", v)),
    "F16": ("float16", lambda v: struct.pack("<e", v)),
    "BF16": ("bfloat16", bf16),
    "I64": ("int64", lambda v: struct.pack("<q", v)),
    "I32": ("int32", lambda v: struct.pack("<i", v)),
    "I16": ("int16", lambda v: struct.pack("<h", v)),
    "I8": ("int8", lambda v: struct.pack("<b", v)),
    "U8": ("uint8", lambda v: struct.pack("<B", v)),
    "BOOL": ("bool", lambda v: struct.pack("<?", v % 2 == 1)),
}


def data(dtype):
    return b"".join(TYPES[dtype][1](i) for i in range(COUNT))


def read(path):
    with open(path, "rb") as file:
        tensors = dict(safetensors.deserialize(file.read()))
    for dtype in TYPES:
        tensor = tensors.pop("t." + dtype)
        assert tensor["dtype"] == dtype, (dtype, tensor["dtype"])
        assert list(tensor["shape"]) == SHAPE, (dtype, tensor["shape"])
        assert bytes(tensor["data"]) == data(dtype), dtype
    scalar = tensors.pop("scalar")
    assert list(scalar["shape"]) == [] and bytes(scalar["data"]) == struct.pack("<f", 0.5), scalar
    assert list(tensors.pop("empty")["shape"]) == [0, 7]
    assert list(tensors) == ["ünïcode \"name\""], list(tensors)
    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"format": "pt", "note": "line\nbreak"}, file.metadata()


def write(path):
    tensors = {"t." + dtype: (name, SHAPE, data(dtype)) for dtype, (name, _) in TYPES.items()}
    tensors["scalar"] = ("float32", [], struct.pack("<f", 0.5))
    tensors["empty"] = ("float32", [0, 7], b"")
    if hasattr(safetensors, "TensorSpec"):  # from 0.8 on: addresses, which `buffers` keeps valid
        buffers = {name: ctypes.create_string_buffer(raw, max(len(raw), 1)) for name, (_, _, raw) in tensors.items()}
        described = {
            name: safetensors.TensorSpec(
                dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffers[name]), data_len=len(raw)
            )
            for name, (dtype, shape, raw) in tensors.items()
        }
    else:
        described = {name: {"dtype": d, "shape": shape, "data": raw} for name, (d, shape, raw) in tensors.items()}
    with open(path, "wb") as file:
        file.write(safetensors.serialize(described, {"format": "pt"}))


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](sys.argv[2])

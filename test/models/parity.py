"""Compares every model with torchvision: initial values bit for bit, then outputs, all gradients and buffers in float64.

Run by ctest: parity.py PROGRAM [MODEL...]. PROGRAM (parity.cpp) gets one file a case and answers with the largest relative
difference. The initial values must be torchvision's own draws from the same seed; the comparison then uses perturbed
values, since a fresh network hides faults (zero classifiers, unit norms).
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import torchvision.models as tv
except ImportError as error:
    sys.exit(f"{sys.executable}: {error}. The parity test needs torch with all its libraries and torchvision: run test/run.sh, "
             "which installs them, or configure with -DLOCKSTEP_PYTHON=<a Python that has both>.")

BATCH = 4
SEED = 20240607
WHOLE = 1_000_000  # larger tensors are compared by a digest, alike in parity.cpp


def small_cnn(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * (size // 4) ** 2, 128), nn.ReLU(),
                         nn.Linear(128, classes))


def vit(width, heads, patch):
    return lambda size, classes: tv.VisionTransformer(image_size=size, patch_size=patch, num_layers=12, num_heads=heads,
                                                      hidden_dim=width, mlp_dim=4 * width, num_classes=classes)


# model, channels, side, classes, builder, model.options
CASES = [
    ("small_cnn", 3, 28, 10, lambda s, c: small_cnn(3, s, c), {}),
    ("small_cnn", 1, 30, 7, lambda s, c: small_cnn(1, s, c), {}),
    ("resnet18", 3, 64, 10, lambda s, c: tv.resnet18(num_classes=c), {}),
    ("resnet18", 1, 64, 10, lambda s, c: tv.resnet18(num_classes=c), {}),
    ("resnet34", 3, 64, 11, lambda s, c: tv.resnet34(num_classes=c), {}),
    ("resnet50", 3, 64, 1000, lambda s, c: tv.resnet50(num_classes=c), {}),
    ("mobilenet_v2", 3, 64, 10, lambda s, c: tv.mobilenet_v2(num_classes=c, dropout=0.0), {}),
    ("mobilenet_v2", 1, 64, 10, lambda s, c: tv.mobilenet_v2(num_classes=c, dropout=0.0), {}),
    ("vgg11", 3, 32, 10, lambda s, c: tv.vgg11(num_classes=c, dropout=0.0), {}),
    ("vit_tiny", 3, 32, 10, vit(192, 3, 4), {}),
    ("vit_tiny", 1, 28, 10, vit(192, 3, 7), {"patch_size": "7"}),
    ("vit_small", 3, 64, 10, vit(384, 6, 16), {}),
    ("vit_base", 3, 64, 10, vit(768, 12, 16), {}),
]


def make_grey(model):
    """Replaces the first convolution by one over a single channel."""
    name, old = next((n, m) for n, m in model.named_modules() if isinstance(m, nn.Conv2d))
    if old.in_channels == 1:
        return
    new = nn.Conv2d(1, old.out_channels, old.kernel_size, old.stride, old.padding, bias=old.bias is not None)
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, new)


def sample(t):
    """At most about 2000 values spread over a tensor."""
    flat = t.detach().flatten()
    return flat[::max(1, flat.numel() // 2000)].clone()


def digest(t):
    t = t.detach()
    if t.numel() <= WHOLE:
        return t.clone()
    return torch.cat([t.flatten()[::97], t.sum(0).flatten(), t.flatten(1).sum(1)])


def perturb(model):
    """Moves every value away from its start, and batch-norm statistics from those of a fresh layer."""
    with torch.no_grad():
        for name, t in list(model.named_parameters()) + list(model.named_buffers()):
            if not t.is_floating_point():
                t.fill_(5)
            elif name.endswith("running_var"):
                t.uniform_(0.5, 1.5)
            else:
                t.add_(0.02 * torch.randn_like(t))


def run(model, x, target, training):
    model.train(training)
    model.zero_grad(set_to_none=True)
    logits = model(x)
    F.cross_entropy(logits, target).backward()
    return {"logits": logits.detach().clone(), "gradients": {n: digest(p.grad) for n, p in model.named_parameters()},
            "buffers": {n: b.clone() for n, b in model.named_buffers()}}


def make_case(name, channels, side, classes, build, options):
    torch.manual_seed(SEED)
    model = build(side, classes)
    native_channels = next(m for m in model.modules() if isinstance(m, nn.Conv2d)).in_channels
    case = {"name": name, "channels": channels, "side": side, "classes": classes, "options": options, "seed": SEED,
            "parameters": [n for n, _ in model.named_parameters()],
            "initial": {n: sample(t) for n, t in model.state_dict().items()} if native_channels == channels else {}}
    if channels == 1:
        make_grey(model)
    perturb(model)
    case["weights"] = {n: t.detach().clone() for n, t in model.state_dict().items()}
    model.double()
    case["x"] = torch.randn(BATCH, channels, side, side, dtype=torch.float64)
    case["target"] = torch.randint(0, classes, (BATCH,))
    case["eval"] = run(model, case["x"], case["target"], False)
    case["train"] = run(model, case["x"], case["target"], True)
    return case


def main():
    program, wanted = sys.argv[1], set(sys.argv[2:])
    failed = []
    with tempfile.TemporaryDirectory(prefix="lockstep_parity_") as folder:
        for name, channels, side, classes, build, options in CASES:
            if wanted and name not in wanted:
                continue
            path = pathlib.Path(folder) / "case.pt"
            torch.save(make_case(name, channels, side, classes, build, options), path)
            done = subprocess.run([program, str(path)])
            if done.returncode != 0:
                failed.append(f"{name} ({channels} channels)")
            path.unlink()
    if failed:
        sys.exit("differs from torchvision: " + ", ".join(failed))


if __name__ == "__main__":
    main()

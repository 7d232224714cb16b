// Gives the shared precompiled header (pch.h) a target to belong to.
namespace lockstep {}

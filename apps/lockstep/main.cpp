#include "lockstep/cli/application.h"

int main(int argc, char** argv) {
  lockstep::Application app(argc, argv);
  return app.run();
}

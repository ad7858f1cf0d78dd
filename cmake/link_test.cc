// The program of every link test (loam_library in loam.cmake): all else comes from the library under test.
int main() {}
